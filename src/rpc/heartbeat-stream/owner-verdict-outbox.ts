/** The verdicts on owners of file leases that a heartbeat stream has ready for its client. */
import type { OwnerVerdict } from '../../domain/files/file-lease.ts';
import { limits } from '../../domain/limits.ts';
import { WireWriter } from '../wire/writer.ts';
import type { Named } from './frames.ts';
import type { Unanswered } from './verdict-outbox.ts';

/** The size of a lost file in a frame, in verdicts on leases: its path and its repository may be long. */
const lostFileSize = 4;

type OwnerStreamVerdict = OwnerVerdict | Unanswered;

export interface OwnerAnswer {
  owner: Named;
  verdict: OwnerStreamVerdict;
}

export class OwnerVerdictOutbox {
  #ready: OwnerAnswer[] = [];

  get isEmpty(): boolean {
    return this.#ready.length === 0;
  }

  add(owners: readonly Named[], verdicts: readonly OwnerStreamVerdict[]): void {
    for (const [i, owner] of owners.entries())
      this.#ready.push({ owner, verdict: verdicts[i] as OwnerStreamVerdict });
  }

  clear(): void {
    this.#ready = [];
  }

  /** The next frame: as many verdicts as fit into the default limit of clients, and at least one. */
  next(): OwnerAnswer[] {
    let size = 0;
    let count = 0;
    for (const { verdict } of this.#ready) {
      size += 1 + (verdict.kind === 'extended' ? verdict.lostFiles.length * lostFileSize : 0);
      if (count > 0 && size > limits.verdictsPerFrame) break;
      count++;
    }
    return this.#ready.splice(0, count);
  }
}

const writer = new WireWriter();

/** A StreamHeartbeatsResponse with verdicts on owners. */
export const encodeOwnerVerdicts = (answers: readonly OwnerAnswer[], drain: boolean): Buffer =>
  writer.encode(() => {
    for (const { owner, verdict } of answers)
      writer.message(2, () => writeVerdict(owner.named, verdict, drain));
  });

function writeVerdict(named: string, verdict: OwnerStreamVerdict, drain: boolean): void {
  writer.text(1, named);
  if (verdict.kind === 'unavailable') {
    writer.message(4, () => writer.text(1, verdict.detail));
    return;
  }
  if (verdict.kind === 'lost') {
    writer.message(3, () => {
      writer.text(1, verdict.code);
      writer.text(2, verdict.detail);
    });
    return;
  }
  writer.message(2, () => {
    writer.timestamp(1, verdict.expiresAtMs);
    writer.whole(2, Math.max(0, Math.floor(verdict.ttlRemainingMs)));
    writer.whole(3, drain ? 1 : 0);
    for (const lost of verdict.lostFiles) {
      writer.message(4, () => {
        writer.text(1, lost.repository);
        writer.text(2, lost.path);
        writer.whole(3, Number(lost.fence));
        writer.timestamp(4, lost.lostAtMs);
        writer.text(5, lost.reason);
      });
    }
  });
}
