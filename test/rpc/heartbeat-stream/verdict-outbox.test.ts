import { create, equals, fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import { StreamHeartbeatsResponseSchema } from '../../../gen/leasehold/v1/leases_pb.js';
import { errorCodes } from '../../../src/domain/errors.ts';
import type { Verdict } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import {
  encodeVerdicts,
  type StreamVerdict,
  unanswered,
  VerdictOutbox,
} from '../../../src/rpc/heartbeat-stream/verdict-outbox.ts';
import { timestamp } from '../../../src/rpc/jobs/convert.ts';

const most = limits.verdictsPerFrame;

/** Answers whose leases are numbers, each with a detail that names its lease. */
function numbered(from: number, count: number) {
  const names = Array.from({ length: count }, (_, i) => String(from + i));
  const leases = names.map((named) => ({ named, weight: 1 }));
  const verdicts = names.map((detail): Verdict => ({ kind: 'lost', code: 'lease_not_found', detail }));
  return { leases, verdicts };
}

describe('VerdictOutbox', () => {
  let queue: VerdictOutbox;
  beforeEach(() => {
    queue = new VerdictOutbox();
  });
  const owe = (from: number, count: number) => {
    const { leases, verdicts } = numbered(from, count);
    queue.add(leases, verdicts);
  };

  it('returns verdicts in order and in the fewest frames, however they were added', () => {
    for (const [sizes, frames] of [
      [[1], [1]],
      [[most], [most]],
      [[2 * most + 1], [most, most, 1]],
      [[1, 2, 3], [6]],
      [
        [most - 1, 2, most],
        [most, most, 1],
      ],
      [
        [most, most],
        [most, most],
      ],
    ] as const) {
      let count = 0;
      for (const size of sizes) {
        owe(count, size);
        count += size;
      }
      let at = 0;
      for (const size of frames) {
        const { leases, verdicts } = queue.next();
        expect({ leases, verdicts }).to.deep.equal(numbered(at, size));
        at += size;
      }
      expect(queue.isEmpty).to.equal(true);
    }
  });

  it('returns no frame without verdicts, except for requested empty frames', () => {
    owe(0, 0);
    expect(queue.isEmpty).to.equal(true);
    owe(0, 1);
    queue.addEmptyFrame();
    queue.addEmptyFrame();
    expect([1, 2, 3].map(() => queue.next().leases.length)).to.deep.equal([0, 0, 1]);
    expect(queue.isEmpty).to.equal(true);
  });

  it('drops all verdicts when the stream ends', () => {
    owe(0, 3);
    queue.addEmptyFrame();
    queue.clear();
    expect(queue.isEmpty).to.equal(true);
  });
});

// A NUL is valid protobuf, but the server refuses it in text.
const text = (maxLength: number) =>
  fc.string({ unit: 'grapheme', maxLength }).filter((one) => !one.includes('\0'));
const leaseId = '0190c1d2-7e1f-7abc-8def-0123456789ab';

describe('encoding of verdict frames', () => {
  const anyVerdict: fc.Arbitrary<StreamVerdict> = fc.oneof(
    fc.constant(unanswered),
    fc.record({
      kind: fc.constant('extended' as const),
      expiresAtMs: fc.integer({ min: -62_135_596_800_000, max: 253_402_300_799_000 }),
      ttlRemainingMs: fc.nat({ max: 4_000_000 }),
      cancelRequested: fc.boolean(),
    }),
    fc.record({
      kind: fc.constant('lost' as const),
      code: fc.constantFrom(...errorCodes),
      detail: text(300),
    }),
  );

  it('encodes verdicts that the generated code decodes', () => {
    const answer = fc.record({ named: text(200), verdict: anyVerdict });
    fc.assert(
      fc.property(fc.array(answer, { maxLength: 60 }), fc.boolean(), (answers, drain) => {
        const leases = answers.map(({ named }) => ({ named, weight: 1 }));
        const bytes = encodeVerdicts(
          leases,
          answers.map(({ verdict }) => verdict),
          drain,
        );
        const verdicts = answers.map(({ named, verdict }) => {
          if (verdict.kind === 'lost') {
            const { code, detail } = verdict;
            return { leaseId: named, outcome: { case: 'lost' as const, value: { code, detail } } };
          }
          if (verdict.kind === 'unavailable') {
            const { detail } = verdict;
            return { leaseId: named, outcome: { case: 'unavailable' as const, value: { detail } } };
          }
          const value = {
            expiresAt: timestamp(verdict.expiresAtMs),
            ttlRemainingMs: BigInt(verdict.ttlRemainingMs),
            cancelRequested: verdict.cancelRequested,
            drain,
          };
          return { leaseId: named, outcome: { case: 'extended' as const, value } };
        });
        const expected = create(StreamHeartbeatsResponseSchema, { verdicts });
        const read = fromBinary(StreamHeartbeatsResponseSchema, bytes);
        expect(equals(StreamHeartbeatsResponseSchema, read, expected)).to.equal(true);
      }),
      { numRuns: 300 },
    );
  });

  it('returns the remaining TTL in whole milliseconds, and never below zero', () => {
    const told = (ttlRemainingMs: number) => {
      const verdict: Verdict = { kind: 'extended', expiresAtMs: 0, ttlRemainingMs, cancelRequested: false };
      const bytes = encodeVerdicts([{ named: leaseId, weight: 1 }], [verdict], false);
      const outcome = fromBinary(StreamHeartbeatsResponseSchema, bytes).verdicts[0]?.outcome;
      return outcome?.case === 'extended' ? outcome.value.ttlRemainingMs : undefined;
    };
    expect([59_999.7, 0.2, -3].map(told)).to.deep.equal([59_999n, 0n, 0n]);
  });

  it('keeps frames below the size limit of clients for verdicts of any length', () => {
    const detail = 'x'.repeat(400);
    const leases = Array.from({ length: limits.verdictsPerFrame }, () => ({
      named: '€'.repeat(200),
      weight: 1,
    }));
    const verdicts = leases.map((): Verdict => ({ kind: 'lost', code: 'invalid_request', detail }));
    expect(encodeVerdicts(leases, verdicts, true).length).to.be.below(4 * 1024 * 1024);
  });
});
