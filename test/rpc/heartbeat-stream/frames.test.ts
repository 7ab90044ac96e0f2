import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  type StreamHeartbeatsRequest,
  type StreamHeartbeatsRequest_Heartbeat,
  StreamHeartbeatsRequestSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../../../src/domain/errors.ts';
import { limits } from '../../../src/domain/limits.ts';
import { isUuid } from '../../../src/lib/uuid.ts';
import { emptySlice, type FrameSlice, HeartbeatFrame } from '../../../src/rpc/heartbeat-stream/frames.ts';
import { WorkerName } from '../../../src/rpc/heartbeat-stream/worker-name.ts';

const leaseId = '0190c1d2-7e1f-7abc-8def-0123456789ab';

/** Everything in a frame, read in pieces of the given weight. */
function read(
  bytes: Uint8Array,
  weight = 20_000,
  worker = new WorkerName(),
): FrameSlice & { pieces: number } {
  const frame = new HeartbeatFrame(Buffer.from(bytes), worker);
  const all = { ...emptySlice(), pieces: 0 };
  while (!frame.done) {
    const piece = frame.next(weight);
    all.heartbeats.push(...piece.heartbeats);
    all.refused.push(...piece.refused);
    all.refusals.push(...piece.refusals);
    all.owners.push(...piece.owners);
    all.refusedOwners.push(...piece.refusedOwners);
    all.ownerRefusals.push(...piece.ownerRefusals);
    all.weight += piece.weight;
    all.pieces++;
  }
  return all;
}

const readable = (bytes: Uint8Array): FrameSlice | DomainError => {
  try {
    return read(bytes);
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
};

/** A frame as the generated code decodes it, in the form of a Piece. */
function expected({ heartbeats }: StreamHeartbeatsRequest) {
  const beats = heartbeats.filter(({ leaseId }) => isUuid(leaseId));
  return {
    beats: beats.map(({ leaseId, workerId, leaseToken, progress, message }) => ({
      leaseId: leaseId.toLowerCase(),
      workerId,
      token: leaseToken?.toLowerCase() ?? null,
      holder: null,
      jobId: null,
      progress: progress ?? null,
      message: message ?? null,
      named: leaseId,
    })),
    strangers: heartbeats.filter((beat) => !beats.includes(beat)).map(({ leaseId }) => leaseId),
  };
}

/** The same frame as our own code decodes it. */
const found = ({ heartbeats, refused }: FrameSlice) => ({
  beats: heartbeats.map(({ weight: _, ...beat }) => beat),
  strangers: refused.map(({ named }) => named),
});

// A NUL is valid protobuf, but the server refuses it in text.
const text = (maxLength: number) =>
  fc.string({ unit: 'grapheme', maxLength }).filter((one) => !one.includes('\0') && one.length <= maxLength);
const anyId = fc.oneof(
  { weight: 4, arbitrary: fc.uuid() },
  fc.uuid().map((id) => id.toUpperCase()),
  text(40),
);
const anyBeat = fc.record({
  leaseId: anyId,
  workerId: text(60).filter((worker) => /\S/.test(worker)),
  leaseToken: fc.option(fc.oneof(fc.uuid(), text(limits.nameChars)), { nil: undefined }),
  progress: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
  message: fc.option(text(300), { nil: undefined }),
});
const anyFrame = fc
  .array(anyBeat, { maxLength: 12 })
  .map((heartbeats) => create(StreamHeartbeatsRequestSchema, { heartbeats }));

const varint = (value: number): number[] =>
  value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(Math.floor(value / 0x80))];
const delimited = (field: number, content: readonly number[]) => [
  ...varint(field * 8 + 2),
  ...varint(content.length),
  ...content,
];
const utf8 = (words: string) => [...Buffer.from(words)];
const frameOf = (...fields: number[][]) => Buffer.from(delimited(1, fields.flat()));

/** Fields that a later version may have, nested ones included. */
const content = fc.array(fc.nat(255), { maxLength: 6 });
const unknownField: fc.Arbitrary<number[]> = fc.letrec<{ field: number[] }>((tie) => ({
  field: fc.integer({ min: 6, max: 100_000 }).chain((field) =>
    fc.oneof(
      { maxDepth: 3 },
      fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map((value) => {
        const bytes = varint(field * 8);
        for (let rest = value; ; rest >>= 7n) {
          if (rest < 0x80n) return [...bytes, Number(rest)];
          bytes.push(Number(rest & 0x7fn) | 0x80);
        }
      }),
      fc
        .array(fc.nat(255), { minLength: 8, maxLength: 8 })
        .map((eight) => [...varint(field * 8 + 1), ...eight]),
      content.map((bytes) => delimited(field, bytes)),
      fc
        .array(fc.nat(255), { minLength: 4, maxLength: 4 })
        .map((four) => [...varint(field * 8 + 5), ...four]),
      fc
        .array(tie('field'), { maxLength: 3 })
        .map((inner) => [...varint(field * 8 + 3), ...inner.flat(), ...varint(field * 8 + 4)]),
    ),
  ),
})).field;

/** The fields of one heartbeat in any order, some repeated, with unknown ones between them. */
const knownField = fc.oneof(
  fc.uuid().map((id) => delimited(1, utf8(id))),
  text(20).map((worker) => delimited(2, utf8(`w${worker}`))),
  text(20).map((token) => delimited(3, utf8(token))),
  fc.double({ min: 0, max: 1, noNaN: true }).map((value) => {
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleLE(value);
    return [4 * 8 + 1, ...bytes];
  }),
  text(20).map((message) => delimited(5, utf8(message))),
);
const named = [delimited(1, utf8(leaseId)), delimited(2, utf8('worker'))];
const scrambled = fc
  .array(fc.oneof(fc.array(fc.oneof(knownField, unknownField), { maxLength: 8 }), unknownField), {
    maxLength: 4,
  })
  .map((parts) =>
    Buffer.from(
      parts.flatMap((part) =>
        typeof part[0] === 'number'
          ? (part as number[])
          : delimited(1, [...named.flat(), ...(part as number[][]).flat()]),
      ),
    ),
  );

describe('decoding of heartbeat frames', () => {
  it('decodes frames like the generated code, for any size of the pieces', () => {
    fc.assert(
      fc.property(anyFrame, fc.integer({ min: 1, max: 30 }), (frame, weight) => {
        const piece = read(toBinary(StreamHeartbeatsRequestSchema, frame), weight);
        expect(found(piece)).to.deep.equal(expected(frame));
        expect(piece.refusals.map(({ code }) => code)).to.deep.equal(
          piece.refused.map(() => 'lease_not_found'),
        );
      }),
      { numRuns: 300 },
    );
  });

  it('accepts fields in any order, repeated fields and unknown ones', () => {
    fc.assert(
      fc.property(scrambled, (bytes) => {
        const frame = fromBinary(StreamHeartbeatsRequestSchema, bytes);
        expect(found(read(bytes))).to.deep.equal(expected(frame));
      }),
      { numRuns: 300 },
    );
  });

  it('refuses truncated frames exactly when the generated code does', () => {
    fc.assert(
      fc.property(scrambled, fc.nat(), (bytes, at) => {
        const cut = bytes.subarray(0, at % (bytes.length + 1));
        let generated: StreamHeartbeatsRequest | undefined;
        try {
          generated = fromBinary(StreamHeartbeatsRequestSchema, cut);
        } catch {
          generated = undefined;
        }
        const ours = readable(cut);
        if (generated) expect(found(ours as FrameSlice)).to.deep.equal(expected(generated));
        else expect(ours).to.be.instanceOf(DomainError).with.property('code', 'invalid_request');
      }),
      { numRuns: 500 },
    );
  });

  it('decodes or refuses frames of arbitrary bytes, and throws nothing else', () => {
    const bytes = fc.uint8Array({ maxLength: 60 });
    fc.assert(
      fc.property(fc.boolean(), bytes, (inside, noise) => {
        const frame = inside ? frameOf([...noise]) : Buffer.from(noise);
        const ours = readable(frame);
        if (!(ours instanceof DomainError))
          expect(ours.heartbeats.length + ours.refused.length).to.be.at.most(30);
      }),
      { numRuns: 2_000 },
    );
  });

  const broken: Record<string, [Buffer, RegExp]> = {
    'that is cut off in a lease': [Buffer.from([0x0a, 0x7f, 0x61]), /^heartbeats\[0\]: .* cut off/],
    'with text that is cut off': [frameOf([0x0a, 0x24, 0x61]), /cut off/],
    'with text that goes on beyond its heartbeat': [
      Buffer.concat([Buffer.from([0x0a, 0x03, 0x0a, 0x24, 0x61]), frameOf(...named)]),
      /cut off/,
    ],
    'with a number that is cut off': [frameOf([0x21, 1, 2]), /cut off/],
    'with a length that is cut off': [Buffer.from([0x0a, 0x80]), /cut off/],
    'with a length of 35 bits': [Buffer.from('0affffffff7f', 'hex'), /too long/],
    'with a tag of 42 bits': [frameOf([0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0]), /too long/],
    'with a number of 77 bits': [frameOf([0x30, ...Array(10).fill(0xff), 0x01]), /too long/],
    'with a field that is number 0': [Buffer.from([0x02, 0x00]), /number 0/],
    'with a group that never ends': [Buffer.from([0x33, 0x33]), /cut off/],
    'with a group that ends as another': [Buffer.from([0x33, 0x3c]), /ends as another/],
    'with the end of no group': [Buffer.from([0x34]), /does not exist/],
    'with a field of kind 7': [frameOf([0x37]), /does not exist/],
    'with groups 5,000 deep': [Buffer.alloc(5_000, 0x33), /nested/],
    'with a worker that is not UTF-8': [frameOf(delimited(2, [0xc3, 0x28])), /UTF-8/],
    'with a lease that is not UTF-8': [frameOf(delimited(1, [0xff])), /UTF-8/],
    'with a surrogate in UTF-8': [frameOf(...named, delimited(5, [0xed, 0xa0, 0x80])), /UTF-8/],
  };
  for (const [how, [bytes, words]] of Object.entries(broken)) {
    it(`refuses a frame ${how}`, () => {
      const error = readable(bytes) as DomainError;
      expect(error).to.be.instanceOf(DomainError);
      expect(error.code).to.equal('invalid_request');
      expect(error.detail).to.match(words);
      expect(error.field).to.match(/^heartbeats\[/);
      // The generated code refuses these too, except for numbers whose upper bits it drops.
      if (!/bits/.test(how)) expect(() => fromBinary(StreamHeartbeatsRequestSchema, bytes)).to.throw();
    });
  }

  it('names the heartbeat that could not be decoded, after the pieces before it', () => {
    const good = Array.from({ length: 5 }, () => [...frameOf(...named)]).flat();
    const frame = new HeartbeatFrame(Buffer.from([...good, 0x0a, 0x05]), new WorkerName());
    expect(frame.next(4).heartbeats).to.have.length(4);
    expect(() => frame.next(4)).to.throw(DomainError, /heartbeats\[5\]/);
  });

  it('skips a known field of another wire type', () => {
    const { heartbeats } = read(frameOf(...named, [0x08, 0x01], [0x20, 0x05], [0x2d, 1, 2, 3, 4]));
    expect(heartbeats).to.have.length(1);
    expect(heartbeats[0]).to.include({ leaseId, progress: null, message: null });
    expect(read(Buffer.from([0x08, 0x05])).heartbeats).to.deep.equal([]);
  });

  const beat = (fields: Partial<StreamHeartbeatsRequest_Heartbeat>) =>
    toBinary(
      StreamHeartbeatsRequestSchema,
      create(StreamHeartbeatsRequestSchema, { heartbeats: [{ leaseId, workerId: 'w', ...fields }] }),
    );
  const wrong: Record<string, [Partial<StreamHeartbeatsRequest_Heartbeat>, string, RegExp]> = {
    'no lease': [{ leaseId: '' }, 'lease_not_found', /there is no lease ""/],
    'a lease that is no id': [{ leaseId: `${leaseId}0` }, 'lease_not_found', /there is no lease/],
    'a lease with its dashes elsewhere': [
      { leaseId: leaseId.replaceAll('-', '').padEnd(36, '-') },
      'lease_not_found',
      /there is no lease/,
    ],
    'a lease with a letter too many': [{ leaseId: leaseId.replace('c', 'g') }, 'lease_not_found', /no lease/],
    'no worker': [{ workerId: '' }, 'invalid_request', /^worker_id: /],
    'a blank worker': [{ workerId: ' \t' }, 'invalid_request', /^worker_id: /],
    'a worker with a long name': [{ workerId: 'w'.repeat(201) }, 'invalid_request', /^worker_id: .*200/],
    'a worker with a NUL': [{ workerId: 'w\0' }, 'invalid_request', /^worker_id: .*NUL/],
    'a long token': [{ leaseToken: 't'.repeat(201) }, 'invalid_request', /^lease_token: .*200/],
    'a token with a NUL': [{ leaseToken: '\0' }, 'invalid_request', /^lease_token: .*NUL/],
    'a progress below 0': [{ progress: -0.1 }, 'invalid_request', /^progress: /],
    'a progress beyond 1': [{ progress: 1.1 }, 'invalid_request', /^progress: /],
    'a progress that is no number': [{ progress: Number.NaN }, 'invalid_request', /^progress: /],
    'an endless progress': [{ progress: Number.POSITIVE_INFINITY }, 'invalid_request', /^progress: /],
    'a long message': [{ message: 'm'.repeat(2_001) }, 'invalid_request', /^message: .*2000/],
    'a message with a NUL': [{ message: 'a\0b' }, 'invalid_request', /^message: .*NUL/],
  };
  for (const [how, [fields, code, detail]] of Object.entries(wrong)) {
    it(`refuses a heartbeat with ${how}, and no other`, () => {
      const good = beat({ message: 'fine', progress: 1, leaseToken: 't'.repeat(200) });
      const { heartbeats, refused, refusals } = read(Buffer.concat([good, beat(fields), good]));
      expect(heartbeats).to.have.length(2);
      expect(refused.map(({ named }) => named)).to.deep.equal([fields.leaseId ?? leaseId]);
      expect(refusals[0]).to.include({ kind: 'lost', code });
      expect(refusals[0]?.detail).to.match(detail);
    });
  }

  it('distinguishes the worker of each heartbeat from the one before', () => {
    const workers = ['a', 'b', 'ab', '', 'é', 'a', 'w'.repeat(300), 'a', 'é', '', 'b'];
    const bytes = Buffer.concat(workers.map((workerId) => beat({ workerId })));
    const worker = new WorkerName();
    for (const weight of [1, 100]) {
      const { heartbeats, refused } = read(bytes, weight, worker);
      expect(heartbeats.map(({ workerId }) => workerId)).to.deep.equal([
        'a',
        'b',
        'ab',
        'é',
        'a',
        'a',
        'é',
        'b',
      ]);
      expect(refused).to.have.length(3);
    }
  });

  it('decodes frames in pieces by weight, in which long heartbeats count for more', () => {
    const short = beat({});
    const long = beat({ message: 'm'.repeat(2_000) });
    expect(read(short).weight).to.equal(1);
    expect(read(long).weight).to.equal(11);
    const many = Buffer.concat(Array<Uint8Array>(100).fill(short));
    expect(read(many, 10)).to.include({ weight: 100, pieces: 10 });
    expect(read(Buffer.concat([long, long]), 5)).to.include({ weight: 22, pieces: 2 });
  });

  it('repeats at most the beginning of an invalid id', () => {
    const { refused, refusals } = read(beat({ leaseId: '𝄞'.repeat(10_000) }));
    expect(refused[0]?.named).to.equal('𝄞'.repeat(100));
    expect(refusals[0]?.detail.length).to.be.below(200);
    expect(read(beat({ leaseId: `x${'𝄞'.repeat(10_000)}` })).refused[0]?.named.isWellFormed()).to.equal(true);
  });
});
