import { create, equals, fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  StreamHeartbeatsResponseSchema,
  StreamWorkResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError, errorCodes } from '../../../src/domain/errors.ts';
import type { Grant } from '../../../src/domain/leases/lease.ts';
import { numbersOf } from '../../../src/rpc/wire/fields.ts';
import { drainFrame, encodeWork } from '../../../src/rpc/work-stream/encode.ts';
import { anyJob } from '../../support/any-job.ts';

describe('the response frames of a work stream', () => {
  it('encodes any outcome of a release such that the generated code decodes it', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 100 });
    const ended = fc.record({ requeued: fc.boolean(), deadLettered: fc.boolean() });
    const refused = fc
      .tuple(fc.constantFrom(...errorCodes), text)
      .map(([code, detail]) => new DomainError(code, detail));
    const answer = fc.record({ named: text, weight: fc.constant(1), outcome: fc.oneof(ended, refused) });
    fc.assert(
      fc.property(fc.array(answer, { maxLength: 30 }), (answers) => {
        const releases = answers.map(({ named, outcome }) => {
          if (!(outcome instanceof DomainError))
            return { leaseId: named, outcome: { case: 'ended' as const, value: outcome } };
          const { code, detail } = outcome;
          return { leaseId: named, outcome: { case: 'refused' as const, value: { code, detail } } };
        });
        const expected = create(StreamWorkResponseSchema, { releases });
        const read = fromBinary(StreamWorkResponseSchema, encodeWork(answers, []).frame);
        expect(equals(StreamWorkResponseSchema, read, expected)).to.equal(true);
      }),
    );
  });

  it('encodes the notice of a stop as the generated code does', () => {
    const expected = create(StreamWorkResponseSchema, { drain: true });
    const read = fromBinary(StreamWorkResponseSchema, drainFrame());
    expect(equals(StreamWorkResponseSchema, read, expected)).to.equal(true);
  });

  it('has the verdicts of heartbeats under the numbers of a heartbeat stream', () => {
    expect(numbersOf(StreamWorkResponseSchema)).to.include(numbersOf(StreamHeartbeatsResponseSchema));
  });

  it('encodes answers and grants as the generated code does, up to the size limit', () => {
    const grant = (payload: string): Grant => {
      const job = { ...fc.sample(anyJob, 1)[0], payload: { payload }, stream: 's' } as Grant['job'];
      return {
        kind: 'granted',
        lease: {
          leaseId: '0190c1d2-7e1f-7abc-8def-0123456789ab',
          jobId: job.jobId,
          addonId: 'a',
          workerId: 'w',
          costUnits: 1,
          ttlS: 60,
          state: 'ACTIVE',
          grantedAtMs: 1,
          lastHeartbeatAtMs: 1,
          expiresAtMs: 2,
          fence: '7',
          attempt: 1,
          endedAtMs: null,
          releaseStatus: null,
          error: null,
          errorDetail: null,
          requeued: false,
          deadLettered: false,
        },
        token: 'token',
        job,
        messageId: 'm',
        heartbeatWithinMs: 10_000,
        waitMs: null,
      };
    };
    const answers = [
      { named: 'a', weight: 1, outcome: { requeued: true, deadLettered: false } },
      { named: 'b', weight: 1, outcome: new DomainError('lease_not_active', 'over') },
    ];
    const grants = Array.from({ length: 5 }, () => grant('x'.repeat(400_000)));
    const first = encodeWork(answers, grants);
    expect([first.answers, first.grants]).to.deep.equal([2, 3]);
    const told = fromBinary(StreamWorkResponseSchema, first.frame);
    expect(told.releases.map(({ leaseId, outcome }) => [leaseId, outcome.case])).to.deep.equal([
      ['a', 'ended'],
      ['b', 'refused'],
    ]);
    expect(told.releases[0]?.outcome.value).to.include({ requeued: true, deadLettered: false });
    expect(told.releases[1]?.outcome.value).to.include({ code: 'lease_not_active', detail: 'over' });
    expect(told.grants.map(({ lease }) => lease?.leaseToken)).to.deep.equal(['token', 'token', 'token']);
    expect(told.grants[0]?.streamMessage).to.include({ stream: 's', messageId: 'm' });
    const rest = encodeWork([], grants.slice(first.grants));
    expect(rest.grants).to.equal(2);
  });
});
