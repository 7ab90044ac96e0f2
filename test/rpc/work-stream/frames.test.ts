import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import fc from 'fast-check';
import { type StreamWorkRequest, StreamWorkRequestSchema } from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../../../src/domain/errors.ts';
import type { Release } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { isUuid } from '../../../src/lib/uuid.ts';
import { emptySlice } from '../../../src/rpc/heartbeat-stream/frames.ts';
import { WorkerName } from '../../../src/rpc/heartbeat-stream/worker-name.ts';
import { releaseOfMessage } from '../../../src/rpc/leases/convert.ts';
import {
  type CreditField,
  type NamedRelease,
  type RefusedRelease,
  WorkFrame,
  type WorkSlice,
} from '../../../src/rpc/work-stream/frames.ts';

const streamsWorker = 'the stream';

/** Everything in a frame, read in pieces of the given weight. */
function read(bytes: Uint8Array, weight = 20_000): WorkSlice & { pieces: number } {
  const frame = new WorkFrame(Buffer.from(bytes), new WorkerName(), streamsWorker);
  const all = {
    ...emptySlice(),
    credits: [] as CreditField[],
    releases: [] as NamedRelease[],
    refusedReleases: [] as RefusedRelease[],
    releaseWeight: 0,
    pieces: 0,
  };
  while (!frame.done) {
    const piece = frame.next(weight);
    all.heartbeats.push(...piece.heartbeats);
    all.refused.push(...piece.refused);
    all.owners.push(...piece.owners);
    all.credits.push(...piece.credits);
    all.releases.push(...piece.releases);
    all.refusedReleases.push(...piece.refusedReleases);
    all.weight += piece.weight;
    all.releaseWeight += piece.releaseWeight;
    all.pieces++;
  }
  return all;
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
        const { releases, refusedReleases } = read(bytes, weight);
        expect(releases.map(({ release }) => release)).to.deep.equal(
          wanted.filter((one) => typeof one !== 'string'),
        );
        expect(refusedReleases.map(({ problem }) => problem.code)).to.deep.equal(
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

  const frameOf = (message: MessageInitShape<typeof StreamWorkRequestSchema>) =>
    Buffer.from(toBinary(StreamWorkRequestSchema, create(StreamWorkRequestSchema, message)));

  it('reads heartbeats, owners, credits and releases in one pass, with the worker of the stream', () => {
    const leaseId = '0190c1d2-7e1f-7abc-8def-0123456789ab';
    const message = {
      heartbeats: [{ leaseId }, { leaseId, workerId: 'another' }, { leaseId: 'x' }],
      owners: [{ ownerId: 'o' }],
      credits: [{ jobs: 1 }],
      releases: [{ leaseId, status: 1 }],
      workerId: streamsWorker,
    };
    for (const weight of [1, 2, 100]) {
      const all = read(frameOf(message), weight);
      expect(all.heartbeats.map(({ workerId }) => workerId)).to.deep.equal([streamsWorker, 'another']);
      expect(all.refused.map(({ named }) => named)).to.deep.equal(['x']);
      expect(all.owners.map(({ ownerId }) => ownerId)).to.deep.equal(['o']);
      expect(all.credits.map(({ jobs }) => jobs)).to.deep.equal([1]);
      expect(all.releases.map(({ release }) => release.workerId)).to.deep.equal([streamsWorker]);
      expect([all.weight, all.releaseWeight]).to.deep.equal([5, 1]);
    }
  });

  it('finds the worker of a first frame, wherever it is, and refuses another one later', () => {
    const first = frameOf({ heartbeats: [{}], workerId: 'w' });
    expect(WorkFrame.workerIn(first)).to.equal('w');
    expect(WorkFrame.workerIn(Buffer.concat([first, first]))).to.equal('w');
    expect(WorkFrame.workerIn(frameOf({ heartbeats: [{}] }))).to.equal('');
    expect(() => read(first))
      .to.throw(DomainError, /another than the one of the first frame/)
      .with.property('field', 'worker_id');
    expect(() => WorkFrame.workerIn(Buffer.from([0x22, 0x7f]))).to.throw(
      DomainError,
      /the frame cannot be read/,
    );
  });

  it('names the item that cannot be read', () => {
    for (const [field, name] of [
      [1, 'heartbeats[1]'],
      [2, 'owners[1]'],
      [3, 'credits[1]'],
      [4, 'releases[1]'],
    ] as const) {
      const bytes = Buffer.from([field * 8 + 2, 0, field * 8 + 2, 5]);
      expect(() => read(bytes))
        .to.throw(DomainError)
        .with.property('field', name);
    }
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
    expect(first?.wanted().filter).to.deep.include({ jobTypes: ['a', 'b'], maxCostUnits: 3, streams: null });
    expect([first?.wanted().ttlS, third?.wanted().ttlS]).to.deep.equal([9, null]);
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
