/** The verdicts that a heartbeat stream has ready for its client, in frames that clients accept. */
import {
  LeaseVerdict_ExtendedSchema,
  LeaseVerdict_LostSchema,
  LeaseVerdict_UnavailableSchema,
  LeaseVerdictSchema,
  StreamHeartbeatsResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import type { Verdict } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { numbersOf } from '../wire/fields.ts';
import { WireWriter } from '../wire/writer.ts';
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

const writer = new WireWriter();
const responseField = numbersOf(StreamHeartbeatsResponseSchema);
const verdictField = numbersOf(LeaseVerdictSchema);
const extendedField = numbersOf(LeaseVerdict_ExtendedSchema);
const lostField = numbersOf(LeaseVerdict_LostSchema);
const unavailableField = numbersOf(LeaseVerdict_UnavailableSchema);

/**
 * A StreamHeartbeatsResponse with the verdicts on these leases. With at most `limits.verdictsPerFrame` of
 * them it fits into the 4 MiB that clients accept by default.
 */
export const encodeVerdicts = (
  leases: readonly Named[],
  verdicts: readonly StreamVerdict[],
  drain: boolean,
): Buffer =>
  writer.encode(() => {
    for (let i = 0; i < leases.length; i++) {
      const { named } = leases[i] as Named;
      const verdict = verdicts[i] as StreamVerdict;
      writer.message(responseField.verdicts, () => writeVerdict(named, verdict, drain));
    }
  });

function writeVerdict(named: string, verdict: StreamVerdict, drain: boolean): void {
  writer.text(verdictField.leaseId, named);
  if (verdict.kind === 'extended') {
    writer.message(verdictField.extended, () => {
      writer.timestamp(extendedField.expiresAt, verdict.expiresAtMs);
      writer.whole(extendedField.ttlRemainingMs, Math.max(0, Math.floor(verdict.ttlRemainingMs)));
      writer.whole(extendedField.cancelRequested, verdict.cancelRequested ? 1 : 0);
      writer.whole(extendedField.drain, drain ? 1 : 0);
    });
  } else if (verdict.kind === 'unavailable') {
    writer.message(verdictField.unavailable, () => writer.text(unavailableField.detail, verdict.detail));
  } else {
    writer.message(verdictField.lost, () => {
      writer.text(lostField.code, verdict.code);
      writer.text(lostField.detail, verdict.detail);
    });
  }
}
