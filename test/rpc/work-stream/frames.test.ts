import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import fc from 'fast-check';
import { type StreamWorkRequest, StreamWorkRequestSchema } from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../../../src/domain/errors.ts';
import type { Release } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { isUuid } from '../../../src/lib/uuid.ts';
import { releaseOfMessage } from '../../../src/rpc/leases/convert.ts';
import { WorkFrame, type WorkSlice } from '../../../src/rpc/work-stream/frames.ts';

const streamsWorker = 'the stream';

/** Everything in a frame, read in pieces of the given weight. */
function read(bytes: Uint8Array, weight = 20_000): WorkSlice & { frame: WorkFrame; pieces: number } {
  const frame = new WorkFrame(Buffer.from(bytes));
  const all: WorkSlice = { credits: [], releases: [], refused: [], weight: 0 };
  let pieces = 0;
  for (; !frame.done; pieces++) {
    const piece = frame.next(weight, streamsWorker);
    all.credits.push(...piece.credits);
    all.releases.push(...piece.releases);
    all.refused.push(...piece.refused);
    all.weight += piece.weight;
  }
  return { ...all, frame, pieces };
}

/** The outcome of each release, by the generated code and the rules of the unary call. */
function expected({ releases }: StreamWorkRequest): (Release | string)[] {
  return releases.map((message) => {
    try {
      const said = releaseOfMessage({ ...message, workerId: message.workerId || streamsWorker });
      if (!isUuid(message.leaseId)) return 'lease_not_found';
      return { ...said, leaseId: said.leaseId.toLowerCase() };
    } catch (error) {
      if (error instanceof DomainError) return error.code;
      throw error;
    }
  });
}

const text = (maxLength: number) => fc.string({ unit: 'grapheme', maxLength });
const anyId = fc.oneof(
  { weight: 4, arbitrary: fc.uuid() },
  fc.uuid().map((id) => id.toUpperCase()),
  text(40),
);
const anyRelease = fc.record(
  {
    leaseId: anyId,
    workerId: fc.oneof(fc.constant(''), text(30)),
    leaseToken: fc.option(fc.oneof(fc.uuid(), text(limits.nameChars + 5)), { nil: undefined }),
    jobId: fc.option(fc.uuid(), { nil: undefined }),
    status: fc.integer({ min: 0, max: 6 }),
    resultData: fc.option(
      text(30).map((value) => create(ValueSchema, { kind: { case: 'stringValue', value } })),
      { nil: undefined },
    ),
    error: fc.option(fc.record({ message: text(30), retryable: fc.boolean() }), { nil: undefined }),
    metrics: fc.option(fc.constant({ pages: 3 }), { nil: undefined }),
  },
  { requiredKeys: ['leaseId', 'status'] },
);
const anyFrame = fc.array(anyRelease, { maxLength: 12 }).map((releases) =>
  // The generator creates the content of a message, without absent fields.
  create(StreamWorkRequestSchema, { releases } as Parameters<
    typeof create<typeof StreamWorkRequestSchema>
  >[1]),
);

describe('the frames of a work stream', () => {
  it('decodes frames like the generated code and the unary call, in pieces of any size', () => {
    fc.assert(
      fc.property(anyFrame, fc.integer({ min: 1, max: 8 }), (message, weight) => {
        const bytes = toBinary(StreamWorkRequestSchema, message);
        const wanted = expected(fromBinary(StreamWorkRequestSchema, bytes));
        const { releases, refused } = read(bytes, weight);
        expect(releases.map(({ release }) => release)).to.deep.equal(
          wanted.filter((one) => typeof one !== 'string'),
        );
        expect(refused.map(({ problem }) => problem.code)).to.deep.equal(
          wanted.filter((one) => typeof one === 'string'),
        );
      }),
    );
  });

  it('splits frames into pieces, and reports the weight of what it has read', () => {
    const releases = Array.from({ length: 100 }, (_, i) => ({
      leaseId: `0190c1d2-7e1f-7abc-8def-0123456789${String(i).padStart(2, '0')}`,
      status: 1,
    }));
    const bytes = toBinary(StreamWorkRequestSchema, create(StreamWorkRequestSchema, { releases }));
    const { pieces, weight } = read(bytes, 10);
    expect([pieces, weight]).to.deep.equal([10, 100]);
  });

  it('reads the worker and the presence of heartbeats, wherever they are in the frame', () => {
    const frame = (message: Parameters<typeof create<typeof StreamWorkRequestSchema>>[1]) =>
      read(toBinary(StreamWorkRequestSchema, create(StreamWorkRequestSchema, message))).frame;
    expect(frame({})).to.include({ hasHeartbeats: false, workerId: undefined });
    expect(frame({ workerId: 'w', heartbeats: [{}] })).to.include({ hasHeartbeats: true, workerId: 'w' });
    expect(frame({ owners: [{ ownerId: 'o' }] }).hasHeartbeats).to.equal(true);
  });

  it('identifies a kind by every field except the number of jobs', () => {
    const credits = [
      { jobs: 5, acceptJobTypes: ['a', 'b'], maxUnits: 3, ttlSec: 9 },
      { jobs: 7, acceptJobTypes: ['a', 'b'], maxUnits: 3, ttlSec: 9 },
      { jobs: 7, acceptJobTypes: ['b'], maxUnits: 3 },
      {},
    ];
    const bytes = toBinary(StreamWorkRequestSchema, create(StreamWorkRequestSchema, { credits }));
    const [first, second, third, last] = read(bytes).credits;
    expect(first?.jobs).to.equal(5);
    expect(second?.bytes).to.equal(first?.bytes);
    expect(third?.bytes).to.not.equal(first?.bytes);
    expect(last).to.include({ jobs: 0, bytes: '' });
    expect(first?.wanted(streamsWorker).filter).to.deep.include({ jobTypes: ['a', 'b'], maxCostUnits: 3, streams: null });
    expect([first?.wanted(streamsWorker).ttlS, third?.wanted(streamsWorker).ttlS]).to.deep.equal([9, null]);
  });

  it('refuses arbitrary bytes as invalid_request, and throws nothing else', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          read(bytes);
        } catch (error) {
          expect(error).to.be.instanceOf(DomainError).and.to.include({ code: 'invalid_request' });
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
