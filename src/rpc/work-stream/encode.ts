/**
 * The response frames of StreamWork: grants and the outcomes of releases. Verdicts on heartbeats leave
 * in frames of their own, whose fields have the same numbers in StreamHeartbeatsResponse.
 */
import {
  ReleaseVerdict_EndedSchema,
  ReleaseVerdict_RefusedSchema,
  ReleaseVerdictSchema,
  StreamWorkResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../../domain/errors.ts';
import type { Grant } from '../../domain/leases/lease.ts';
import type { EndOutcome } from '../../engine/dispatch/lease-endings.ts';
import { writer } from '../jobs/encode.ts';
import { writeGrant } from '../leases/encode.ts';
import { numbersOf } from '../wire/fields.ts';

const responseField = numbersOf(StreamWorkResponseSchema);
const verdictField = numbersOf(ReleaseVerdictSchema);
const endedField = numbersOf(ReleaseVerdict_EndedSchema);
const refusedField = numbersOf(ReleaseVerdict_RefusedSchema);

/** The outcome of a release. */
export interface ReleaseAnswer {
  named: string;
  weight: number;
  outcome: EndOutcome | DomainError;
}

/** A frame of this size takes no further items. Clients accept 4 MiB by default. */
const frameBytes = 1024 * 1024;

/** Encodes one StreamWorkResponse with as many of the first answers and grants as it holds. */
export function encodeWork(
  answers: readonly ReleaseAnswer[],
  grants: readonly Grant[],
): { frame: Buffer; answers: number; grants: number } {
  let [answered, granted] = [0, 0];
  const frame = writer.encode(() => {
    for (; answered < answers.length && writer.length < frameBytes; answered++)
      writeAnswer(answers[answered] as ReleaseAnswer);
    for (; granted < grants.length && writer.length < frameBytes; granted++)
      writeGrant(responseField.grants, grants[granted] as Grant);
  });
  return { frame, answers: answered, grants: granted };
}

/** A StreamWorkResponse with `drain`: the server is about to stop. */
export const drainFrame = (): Buffer => writer.encode(() => writer.whole(responseField.drain, 1));

function writeAnswer({ named, outcome }: ReleaseAnswer): void {
  writer.message(responseField.releases, () => {
    writer.text(verdictField.leaseId, named);
    if (outcome instanceof DomainError) {
      writer.message(verdictField.refused, () => {
        writer.text(refusedField.code, outcome.code);
        writer.text(refusedField.detail, outcome.detail);
      });
    } else {
      writer.message(verdictField.ended, () => {
        writer.whole(endedField.requeued, outcome.requeued ? 1 : 0);
        writer.whole(endedField.deadLettered, outcome.deadLettered ? 1 : 0);
      });
    }
  });
}
