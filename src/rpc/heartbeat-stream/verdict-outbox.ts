/** The verdicts that a heartbeat stream has ready for its client, in frames that clients accept. */
import type { Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { Named } from './frames.ts';

/** The database did not answer, so the outcome of the heartbeat is unknown. */
export interface Unanswered {
  kind: 'unavailable';
  detail: string;
}

export const unanswered: Unanswered = {
  kind: 'unavailable',
  detail: 'the database does not answer; send the heartbeat again',
};

/** The answer of a stream to a heartbeat. */
export type StreamVerdict = Verdict | Unanswered;

/** The content of one frame. */
export interface Answers {
  leases: readonly Named[];
  verdicts: readonly StreamVerdict[];
}

const nothing: Answers = { leases: [], verdicts: [] };

export class VerdictOutbox {
  #ready: Answers[] = [];
  #emptyFrames = 0;

  get isEmpty(): boolean {
    return this.#ready.length === 0 && this.#emptyFrames === 0;
  }

  add(leases: readonly Named[], verdicts: readonly StreamVerdict[]): void {
    if (leases.length > 0) this.#ready.push({ leases, verdicts });
  }

  addEmptyFrame(): void {
    this.#emptyFrames++;
  }

  clear(): void {
    this.#ready = [];
    this.#emptyFrames = 0;
  }

  /** The next frame, as full as allowed. Empty frames come first: they are few and delay nothing. */
  next(): Answers {
    if (this.#emptyFrames > 0) {
      this.#emptyFrames--;
      return nothing;
    }
    const [first] = this.#ready;
    if (this.#ready.length === 1 && first && first.leases.length <= limits.verdictsPerFrame) {
      this.#ready = [];
      return first;
    }
    return this.#gather(limits.verdictsPerFrame);
  }

  #gather(max: number): Answers {
    const leases: Named[] = [];
    const verdicts: StreamVerdict[] = [];
    let taken = 0;
    for (const ready of this.#ready) {
      const room = max - leases.length;
      if (room === 0) break;
      const fits = Math.min(room, ready.leases.length);
      for (let i = 0; i < fits; i++) {
        leases.push(ready.leases[i] as Named);
        verdicts.push(ready.verdicts[i] as StreamVerdict);
      }
      if (fits < ready.leases.length) {
        this.#ready[taken] = { leases: ready.leases.slice(fits), verdicts: ready.verdicts.slice(fits) };
        break;
      }
      taken++;
    }
    this.#ready = this.#ready.slice(taken);
    return { leases, verdicts };
  }
}
