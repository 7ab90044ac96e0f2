/** The verdicts on owners of file leases that a heartbeat stream has ready for its client. */
import { LostFileSchema } from '../../../gen/leasehold/v1/files_pb.js';
import {
  OwnerVerdict_ExtendedSchema,
  OwnerVerdict_LostSchema,
  OwnerVerdict_UnavailableSchema,
  OwnerVerdictSchema,
  StreamHeartbeatsResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import type { OwnerVerdict } from '../../domain/files/file-lease.ts';
import { limits } from '../../domain/limits.ts';
import { numbersOf } from '../wire/fields.ts';
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
const responseField = numbersOf(StreamHeartbeatsResponseSchema);
const verdictField = numbersOf(OwnerVerdictSchema);
const extendedField = numbersOf(OwnerVerdict_ExtendedSchema);
const lostField = numbersOf(OwnerVerdict_LostSchema);
const unavailableField = numbersOf(OwnerVerdict_UnavailableSchema);
const fileField = numbersOf(LostFileSchema);

/** A StreamHeartbeatsResponse with verdicts on owners. */
export const encodeOwnerVerdicts = (answers: readonly OwnerAnswer[], drain: boolean): Buffer =>
  writer.encode(() => {
    for (const { owner, verdict } of answers)
      writer.message(responseField.owners, () => writeVerdict(owner.named, verdict, drain));
  });

function writeVerdict(named: string, verdict: OwnerStreamVerdict, drain: boolean): void {
  writer.text(verdictField.ownerId, named);
  if (verdict.kind === 'unavailable') {
    writer.message(verdictField.unavailable, () => writer.text(unavailableField.detail, verdict.detail));
    return;
  }
  if (verdict.kind === 'lost') {
    writer.message(verdictField.lost, () => {
      writer.text(lostField.code, verdict.code);
      writer.text(lostField.detail, verdict.detail);
    });
    return;
  }
  writer.message(verdictField.extended, () => {
    writer.timestamp(extendedField.expiresAt, verdict.expiresAtMs);
    writer.whole(extendedField.ttlRemainingMs, Math.max(0, Math.floor(verdict.ttlRemainingMs)));
    writer.whole(extendedField.drain, drain ? 1 : 0);
    for (const lost of verdict.lostFiles) {
      writer.message(extendedField.lostFiles, () => {
        writer.text(fileField.repository, lost.repository);
        writer.text(fileField.path, lost.path);
        writer.whole(fileField.fence, Number(lost.fence));
        writer.timestamp(fileField.lostAt, lost.lostAtMs);
        writer.text(fileField.reason, lost.reason);
      });
    }
  });
}
