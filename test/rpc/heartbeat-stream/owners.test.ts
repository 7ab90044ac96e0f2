import { create, equals, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  StreamHeartbeatsRequestSchema,
  StreamHeartbeatsResponseSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { DomainError, errorCodes } from '../../../src/domain/errors.ts';
import type { OwnerVerdict } from '../../../src/domain/files/file-lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { HeartbeatFrame } from '../../../src/rpc/heartbeat-stream/frames.ts';
import {
  encodeOwnerVerdicts,
  type OwnerAnswer,
  OwnerVerdictOutbox,
} from '../../../src/rpc/heartbeat-stream/owner-verdict-outbox.ts';
import { streamHeartbeats } from '../../../src/rpc/heartbeat-stream/session.ts';
import { unanswered } from '../../../src/rpc/heartbeat-stream/verdict-outbox.ts';
import { WorkerName } from '../../../src/rpc/heartbeat-stream/worker-name.ts';
import type { FrameSession } from '../../../src/rpc/implementation.ts';
import { timestamp } from '../../../src/rpc/jobs/convert.ts';
import { ownersFrame, ScriptedEngine } from '../../support/heartbeat-streams.ts';
import { caller } from '../../support/jobs.ts';
import { eventually } from '../../support/server.ts';

const lostFile = (path: string) => ({
  repository: 'r',
  path,
  fence: '7',
  lostAtMs: 1_700_000_000_123,
  reason: 'ops had it released by force',
});

const kept = (files: readonly string[] = []): OwnerVerdict => ({
  kind: 'extended',
  expiresAtMs: 1_700_000_060_000,
  ttlRemainingMs: 60_000,
  lostFiles: files.map(lostFile),
});

describe('owners in heartbeat frames', () => {
  it('decodes owners that the generated code encodes, and refuses invalid ones by name', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'grapheme', maxLength: 250 }), { maxLength: 30 }), (names) => {
        const frame = new HeartbeatFrame(ownersFrame(names), new WorkerName());
        const { owners, refusedOwners, ownerRefusals, heartbeats } = frame.next(1_000_000);
        expect(heartbeats).to.deep.equal([]);
        const isGood = (name: string) =>
          /\S/.test(name) && name.length <= limits.nameChars && !name.includes('\0');
        expect(owners.map(({ ownerId }) => ownerId)).to.deep.equal(names.filter(isGood));
        expect(refusedOwners).to.have.length(names.filter((name) => !isGood(name)).length);
        for (const refusal of ownerRefusals) {
          expect(refusal.code).to.equal('invalid_request');
          expect(refusal.detail).to.match(/^owner_id/);
        }
        expect(frame.owners).to.equal(names.length);
      }),
    );
  });

  it('names the owner at which a frame is truncated', () => {
    const whole = ownersFrame(['first', 'second']);
    const frame = new HeartbeatFrame(whole.subarray(0, whole.length - 2), new WorkerName());
    expect(() => frame.next(100))
      .to.throw(DomainError)
      .with.property('field', 'owners[1]');
  });

  it('encodes any verdict of an owner such that the generated code decodes it', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 100 });
    const ms = fc.integer({ min: -62_135_596_800_000, max: 253_402_300_799_000 });
    const lostFiles = fc.array(
      fc.record({
        repository: text,
        path: text,
        fence: fc.maxSafeNat().map(String),
        lostAtMs: ms,
        reason: text,
      }),
      { maxLength: 5 },
    );
    const anyVerdict = fc.oneof(
      fc.record({
        kind: fc.constant('extended' as const),
        expiresAtMs: ms,
        ttlRemainingMs: fc.nat(),
        lostFiles,
      }),
      fc.record({ kind: fc.constant('lost' as const), code: fc.constantFrom(...errorCodes), detail: text }),
      fc.constant(unanswered),
    );
    const outcomeOf = (verdict: OwnerAnswer['verdict'], drain: boolean) => {
      if (verdict.kind === 'lost')
        return { case: 'lost' as const, value: { code: verdict.code, detail: verdict.detail } };
      if (verdict.kind === 'unavailable')
        return { case: 'unavailable' as const, value: { detail: verdict.detail } };
      const value = {
        expiresAt: timestamp(verdict.expiresAtMs),
        ttlRemainingMs: BigInt(verdict.ttlRemainingMs),
        drain,
        lostFiles: verdict.lostFiles.map(({ fence, lostAtMs, ...file }) => ({
          ...file,
          fence: BigInt(fence),
          lostAt: timestamp(lostAtMs),
        })),
      };
      return { case: 'extended' as const, value };
    };
    const answer = fc.record({
      owner: fc.record({ named: text, weight: fc.constant(1) }),
      verdict: anyVerdict,
    });
    fc.assert(
      fc.property(fc.array(answer, { maxLength: 10 }), fc.boolean(), (answers, drain) => {
        const owners = answers.map(({ owner, verdict }) => ({
          ownerId: owner.named,
          outcome: outcomeOf(verdict, drain),
        }));
        const read = fromBinary(StreamHeartbeatsResponseSchema, encodeOwnerVerdicts(answers, drain));
        const expected = create(StreamHeartbeatsResponseSchema, { owners });
        expect(equals(StreamHeartbeatsResponseSchema, read, expected)).to.equal(true);
      }),
    );
  });

  it("sends verdicts in frames below the clients' size limit, however many files were lost", () => {
    const answers = new OwnerVerdictOutbox();
    const long = Array.from({ length: limits.lostFilesTold }, (_, i) =>
      `${i}`.padStart(limits.pathBytes, 'x'),
    );
    const owners = Array.from({ length: 40 }, (_, i) => ({ named: `o${i}`, weight: 1 }));
    answers.add(
      owners,
      owners.map(() => kept(long)),
    );
    let told = 0;
    while (!answers.isEmpty) {
      const frame = answers.next();
      told += frame.length;
      expect(encodeOwnerVerdicts(frame, false).length).to.be.below(4 * 1024 * 1024);
    }
    expect(told).to.equal(40);
  });
});

describe('owners on a heartbeat stream', () => {
  class Pipe {
    readonly engine = new ScriptedEngine();
    readonly sent: { frame: Buffer; onSent(): void }[] = [];
    reads = 0;
    over = false;
    readonly session: FrameSession;

    constructor() {
      const stream = {
        read: () => void this.reads++,
        send: (frame: Buffer, onSent: () => void) => void this.sent.push({ frame, onSent }),
        end: () => {
          this.over = true;
        },
      };
      this.session = streamHeartbeats(this.engine).streamHeartbeats(stream, caller);
    }
  }

  const turn = () => new Promise((resolve) => setImmediate(resolve));

  it('answers owners beside leases, and ends only after all are answered', async () => {
    const pipe = new Pipe();
    const leaseId = '0190c1d2-7e1f-7abc-8def-0123456789ab';
    pipe.session.onFrame(ownersFrame(['a', 'b'], [leaseId]));
    pipe.session.onEnd();
    await eventually('the engine is asked for both', async () =>
      pipe.engine.owners.length === 1 && pipe.engine.calls.length === 1 ? true : undefined,
    );
    pipe.engine.calls[0]?.answer();
    await eventually('the lease is answered', async () => pipe.sent[0]);
    pipe.sent[0]?.onSent();
    await turn();
    expect(pipe.over, 'owners are not answered').to.equal(false);
    pipe.engine.owners[0]?.answer();
    await eventually('the owners are answered', async () => pipe.sent[1]);
    expect(pipe.over).to.equal(false);
    pipe.sent[1]?.onSent();
    await eventually('it ends', async () => (pipe.over ? true : undefined));
  });

  it('stops reading at its bound while owners wait for the engine', async () => {
    const pipe = new Pipe();
    const names = Array.from({ length: 2_000 }, (_, i) => `o${i}`);
    for (let frames = 0; frames < 30 && pipe.reads === frames; frames++) {
      pipe.session.onFrame(ownersFrame(names));
      await turn();
      await turn();
    }
    const heard = pipe.engine.owners.reduce((sum, { of }) => sum + of.length, 0);
    expect(pipe.reads * names.length).to.be.at.most(limits.streamHeartbeats);
    expect(heard, 'calls under way at once').to.be.at.most(4 * 2_000);
    const before = pipe.reads;
    for (let round = 0; round < 40; round++) {
      for (const call of pipe.engine.owners) if (!call.answered) call.answer();
      await turn();
      for (const { onSent } of pipe.sent.splice(0)) onSent();
      await turn();
    }
    expect(pipe.reads).to.be.above(before);
    pipe.session.onGone();
  });

  it('answers an empty frame with an empty frame to a client that sends no owners', async () => {
    const pipe = new Pipe();
    const empty = toBinary(StreamHeartbeatsRequestSchema, create(StreamHeartbeatsRequestSchema));
    pipe.session.onFrame(Buffer.from(empty));
    const answer = await eventually('it is answered', async () => pipe.sent[0]);
    expect(answer.frame).to.have.length(0);
    pipe.session.onGone();
  });
});
