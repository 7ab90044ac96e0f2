import { create, type DescMessage, equals, fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  AcquireLeaseResponseSchema,
  HeartbeatResponseSchema,
  ReleaseLeaseResponseSchema,
  RequestLeaseResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { finalStatuses, type JobResult, type Json, type JsonObject } from '../../../src/domain/jobs/job.ts';
import { type Lease, leaseStates } from '../../../src/domain/leases/lease.ts';
import { timestamp } from '../../../src/rpc/jobs/convert.ts';
import type { EncodedMessage } from '../../../src/rpc/jobs/encode.ts';
import {
  heartbeatResponse,
  leaseOutcomeResponse,
  releaseLeaseResponse,
} from '../../../src/rpc/leases/encode.ts';
import { anyJob, json, ms, optional, text, whole } from '../../support/any-job.ts';
import { expectedJob, expectedLease, expectedResult } from '../../support/expected-messages.ts';

const anyJson = fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }).filter(
  // Decoders would mistake such a member for something else, so the server stores none.
  (value) => !JSON.stringify(value).includes('__proto__'),
) as fc.Arbitrary<Json>;

const anyLease: fc.Arbitrary<Lease> = fc.record({
  leaseId: fc.uuid(),
  jobId: fc.uuid(),
  addonId: text,
  workerId: text,
  costUnits: whole,
  ttlS: whole,
  state: fc.constantFrom(...leaseStates),
  grantedAtMs: ms,
  lastHeartbeatAtMs: ms,
  expiresAtMs: ms,
  fence: fc.maxSafeNat().map(String),
  attempt: whole,
  endedAtMs: optional(ms),
  releaseStatus: optional(fc.constantFrom(...finalStatuses)),
  error: optional(text),
  errorDetail: optional(json) as fc.Arbitrary<JsonObject | null>,
  requeued: fc.boolean(),
  deadLettered: fc.boolean(),
});

const anyResult: fc.Arbitrary<JobResult> = fc.record({
  jobId: fc.uuid(),
  status: fc.constantFrom(...finalStatuses),
  resultData: anyJson,
  error: optional(text),
  errorDetail: optional(json) as fc.Arbitrary<JsonObject | null>,
  startedAtMs: optional(ms),
  finishedAtMs: ms,
  attempts: whole,
  metrics: optional(json) as fc.Arbitrary<JsonObject | null>,
});

const expectSame = <Desc extends DescMessage>(
  schema: Desc,
  { bytes }: EncodedMessage,
  expected: MessageInitShape<Desc>,
): void => {
  expect(equals(schema, fromBinary(schema, bytes), create(schema, expected))).to.equal(true);
};

describe('the encoder of lease answers', () => {
  it('encodes any grant such that the generated code decodes it', () => {
    fc.assert(
      fc.property(
        anyLease,
        anyJob,
        text,
        optional(text),
        whole,
        (lease, job, token, messageId, heartbeatWithinMs) => {
          const answer = leaseOutcomeResponse({
            kind: 'granted',
            lease,
            job,
            token,
            messageId,
            heartbeatWithinMs,
            waitMs: null,
          });
          const value = {
            lease: { ...expectedLease(lease), leaseToken: token },
            job: expectedJob(job),
            streamMessage:
              job.stream === null || messageId === null ? undefined : { stream: job.stream, messageId },
            heartbeatWithinMs: BigInt(heartbeatWithinMs),
          };
          expectSame(RequestLeaseResponseSchema, answer, { outcome: { case: 'granted', value } });
          expectSame(AcquireLeaseResponseSchema, answer, { outcome: { case: 'granted', value } });
        },
      ),
    );
  });

  it('encodes any denial such that the generated code decodes it', () => {
    fc.assert(
      fc.property(text, whole, (reason, retryAfterMs) => {
        const answer = leaseOutcomeResponse({ kind: 'denied', reason, retryAfterMs });
        const value = { reason, retryAfterMs: BigInt(retryAfterMs) };
        expectSame(RequestLeaseResponseSchema, answer, { outcome: { case: 'denied', value } });
        expectSame(AcquireLeaseResponseSchema, answer, { outcome: { case: 'denied', value } });
      }),
    );
  });

  it('encodes any heartbeat such that the generated code decodes it', () => {
    fc.assert(
      fc.property(ms, whole, fc.boolean(), fc.boolean(), (expiresAtMs, left, cancelRequested, drain) => {
        const extended = { kind: 'extended', expiresAtMs, ttlRemainingMs: left, cancelRequested } as const;
        expectSame(HeartbeatResponseSchema, heartbeatResponse(extended, drain), {
          expiresAt: timestamp(expiresAtMs),
          ttlRemainingMs: BigInt(left),
          cancelRequested,
          drain,
        });
      }),
    );
  });

  it('encodes any release such that the generated code decodes it', () => {
    fc.assert(
      fc.property(anyLease, anyJob, optional(anyResult), (lease, job, result) => {
        expectSame(ReleaseLeaseResponseSchema, releaseLeaseResponse({ lease, job, result }), {
          lease: expectedLease(lease),
          job: expectedJob(job),
          result: result === null ? undefined : expectedResult(result),
          requeued: lease.requeued,
          deadLettered: lease.deadLettered,
        });
      }),
    );
  });
});
