import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import type { Verdict } from '../../../src/domain/leases/lease.ts';
import { limits } from '../../../src/domain/limits.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { streamHeartbeats } from '../../../src/rpc/heartbeat-stream/session.ts';
import { extended, frame, frameFor, ScriptedEngine } from '../../support/heartbeat-streams.ts';
import { ScriptedStream, settle } from '../../support/scripted-stream.ts';

const ids = (count: number): string[] => Array.from({ length: count }, () => newId());
const one = (): string => newId();

describe('a heartbeat stream', () => {
  let engine: ScriptedEngine;
  let wire: ScriptedStream;
  const connect = () => new ScriptedStream(streamHeartbeats(engine).streamHeartbeats);
  beforeEach(() => {
    engine = new ScriptedEngine();
    wire = connect();
  });
  afterEach(() => wire.leave());

  it('reports a lease as extended after the engine has done so, and not before', async () => {
    const leaseId = one();
    wire.give(frame([{ leaseId, workerId: 'worker', leaseToken: 'secret', progress: 0.5, message: 'half' }]));
    await settle();
    expect(wire.sent).to.deep.equal([]);
    expect(engine.calls[0]?.of[0]).to.include({
      leaseId,
      workerId: 'worker',
      token: 'secret',
      progress: 0.5,
      message: 'half',
    });
    engine.calls[0]?.answer([extended({ cancelRequested: true })]);
    await settle();
    const [verdict] = wire.verdicts;
    expect(verdict?.leaseId).to.equal(leaseId);
    expect(verdict?.outcome.value).to.include({
      ttlRemainingMs: 60_000n,
      cancelRequested: true,
      drain: false,
    });
  });

  it('answers each lease with its own verdict, under the name that the client sent', async () => {
    const [a, b, c] = ids(3) as [string, string, string];
    wire.give(frameFor([a, 'nonsense', b.toUpperCase(), c]));
    await settle();
    expect(engine.calls[0]?.of.map(({ leaseId }) => leaseId)).to.deep.equal([a, b, c]);
    const detail = 'it is over';
    engine.calls[0]?.answer([extended(), { kind: 'lost', code: 'lease_not_active', detail }, extended()]);
    await settle();
    const told = Object.fromEntries(wire.verdicts.map(({ leaseId, outcome }) => [leaseId, outcome]));
    expect(Object.keys(told)).to.have.members([a, 'nonsense', b.toUpperCase(), c]);
    expect(told[a]?.case).to.equal('extended');
    expect(told[b.toUpperCase()]?.value).to.include({ code: 'lease_not_active', detail });
    expect(told.nonsense?.value).to.include({ code: 'lease_not_found' });
    expect(wire.ended).to.equal(undefined);
  });

  it('answers an empty frame with an empty frame', async () => {
    wire.give(Buffer.alloc(0), Buffer.from([0x10, 0x01]), frameFor([]));
    await settle();
    expect(wire.sent.map(({ length }) => length)).to.deep.equal([0, 0, 0]);
  });

  it('accepts many frames while the first is in flight, and passes them on together', async () => {
    for (let n = 0; n < 4; n++) {
      wire.give(frameFor([one()]));
      await settle();
    }
    for (let n = 0; n < 100; n++) wire.give(frameFor([one()]));
    for (let n = 0; n < 20; n++) await settle();
    expect(engine.calls.map(({ of }) => of.length)).to.deep.equal([1, 1, 1, 1]);
    expect(wire.unread).to.equal(0);
    engine.calls[2]?.answer();
    await settle();
    expect(engine.calls.map(({ of }) => of.length)).to.deep.equal([1, 1, 1, 1, 100]);
  });

  it('sends verdicts together that become ready together', async () => {
    for (let n = 0; n < 3; n++) {
      wire.give(frameFor(ids(10)));
      await settle();
    }
    expect(engine.calls).to.have.length(3);
    engine.answerAll();
    await settle();
    expect(wire.frames.map(({ length }) => length)).to.deep.equal([30]);
  });

  it('sends the verdicts of a later call without waiting for a slow one', async () => {
    const [slow, quick] = [one(), one()];
    wire.give(frameFor([slow]));
    await settle();
    wire.give(frameFor([quick]));
    await settle();
    engine.calls[1]?.answer();
    await settle();
    expect(wire.told).to.deep.equal([quick]);
  });

  it('sends the verdicts of a frame before that of a locked lease, and ends only after it', async () => {
    const [free, locked] = [one(), one()];
    let unlock = (_: Verdict) => {};
    for (let n = 0; n < 6; n++) {
      wire.give(frameFor([free, locked]));
      await settle();
      const held = new Promise<Verdict>((resolve) => {
        unlock = resolve;
      });
      engine.calls[n]?.answer([extended(), held]);
    }
    await settle();
    expect(wire.told).to.deep.equal(Array(6).fill(free));
    expect(engine.calls).to.have.length(6);
    wire.session.onEnd();
    unlock({ kind: 'lost', code: 'lease_not_active', detail: '' });
    await settle();
    expect(wire.told.at(-1)).to.equal(locked);
    expect(wire.ended).to.equal(undefined);
  });

  it('continues after a locked lease fails, and frees its slot in the bound', async () => {
    const gone = new DomainError('deadline_exceeded', 'the database took too long');
    const heavy = frame([{ leaseId: one(), workerId: 'w', message: 'm'.repeat(1_999) }]);
    wire.give(...Array<Buffer>(limits.streamHeartbeats / 10).fill(heavy));
    for (let n = 0; n < 200 && wire.unread > 0; n++) {
      for (const call of engine.calls) {
        if (!call.answered) call.answer(call.of.map(() => Promise.reject(gone)));
      }
      await settle();
    }
    expect([wire.unread, wire.verdicts.length, wire.ended]).to.deep.equal([0, 0, undefined]);
  });

  it('ends after the last locked lease was answered, or with the error that came instead', async () => {
    const other = connect();
    for (const stream of [wire, other]) {
      stream.give(frameFor([one()]));
      stream.session.onEnd();
    }
    await settle();
    const gone = new DomainError('unavailable', 'the database has gone');
    const refuse = { now: () => {} };
    engine.calls[0]?.answer([settle().then(() => extended())]);
    engine.calls[1]?.answer([
      new Promise((_, reject) => {
        refuse.now = () => reject(gone);
      }),
    ]);
    for (let n = 0; n < 3; n++) await settle();
    expect(wire.verdicts).to.have.length(1);
    expect(wire.ended).to.deep.equal({ error: undefined });
    expect(other.ended).to.equal(undefined);
    refuse.now();
    await settle();
    expect(other.ended).to.deep.equal({ error: gone });
  });

  it('stops reading at its bound while the engine is busy, and continues when it answers', async () => {
    const frames = Array<Buffer>(60).fill(frameFor(ids(1_000)));
    wire.give(...frames);
    for (let n = 0; n < 20; n++) await settle();
    expect(60 - wire.unread).to.equal(limits.streamHeartbeats / 1_000);
    expect(wire.asks).to.equal(false);
    for (let n = 0; n < 200 && wire.verdicts.length < 60_000; n++) {
      engine.answerAll();
      expect(engine.open).to.be.at.most(limits.streamHeartbeats);
      await settle();
    }
    expect(wire.verdicts).to.have.length(60_000);
    expect(engine.calls.every(({ of }) => of.length <= 2_000)).to.equal(true);
  });

  it('counts long heartbeats by their weight', async () => {
    const long = frame([{ leaseId: one(), workerId: 'w', message: 'm'.repeat(2_000) }]);
    wire.give(...Array<Buffer>(4_000).fill(long));
    for (let n = 0; n < 500 && wire.asks; n++) await settle();
    expect(wire.asks).to.equal(false);
    expect(4_000 - wire.unread).to.equal(Math.ceil(limits.streamHeartbeats / 11));
  });

  it('stops reading at its bound while the client does not read, and sends single frames', async () => {
    engine.eager = true;
    wire.takes = false;
    wire.give(...Array<Buffer>(60).fill(frameFor(ids(1_000))));
    for (let n = 0; n < 20; n++) await settle();
    expect(wire.sent).to.have.length(1);
    expect(60 - wire.unread).to.equal(limits.streamHeartbeats / 1_000);
    wire.take();
    for (let n = 0; n < 100 && wire.verdicts.length < 60_000; n++) await settle();
    expect(wire.verdicts).to.have.length(60_000);
    for (const { length } of wire.frames) expect(length).to.be.at.most(limits.verdictsPerFrame);
  });

  it('decodes a large frame piece by piece as its answers are sent', async () => {
    const leaseIds = ids(50_000);
    wire.give(frameFor(leaseIds));
    for (let n = 0; n < 200 && wire.verdicts.length < 50_000; n++) {
      await settle();
      expect(engine.heard - wire.verdicts.length).to.be.at.most(limits.streamHeartbeats);
      engine.answerAll();
    }
    expect(wire.told.sort()).to.deep.equal(leaseIds);
  });

  it('answers a frame that contains only invalid heartbeats in several frames', async () => {
    const nothing = 50_000;
    wire.takes = false;
    wire.give(Buffer.concat(Array<Buffer>(nothing).fill(Buffer.from([0x0a, 0x00]))));
    await settle();
    expect(wire.verdicts).to.have.length(limits.verdictsPerFrame);
    wire.take();
    for (let n = 0; n < 100 && wire.verdicts.length < nothing; n++) await settle();
    expect(wire.verdicts).to.have.length(nothing);
    expect(engine.calls).to.deep.equal([]);
  });

  it('answers every lease after the client ended its side, and then ends with OK', async () => {
    wire.give(frameFor(ids(3)), frameFor(ids(3)));
    await settle();
    wire.session.onEnd();
    await settle();
    expect(wire.ended).to.equal(undefined);
    engine.answerAll();
    await settle();
    expect(wire.verdicts).to.have.length(6);
    expect(wire.ended).to.deep.equal({ error: undefined });
  });

  it("ends after a client's half-close only when its answers have left", async () => {
    wire.takes = false;
    engine.eager = true;
    wire.give(frameFor(ids(3)));
    await settle();
    wire.session.onEnd();
    expect(wire.sent).to.have.length(1);
    expect(wire.ended).to.equal(undefined);
    wire.take();
    expect(wire.ended).to.deep.equal({ error: undefined });
  });

  it('ends with an error after an invalid frame, once the frames before it are answered', async () => {
    const good = ids(7);
    const broken = Buffer.concat([frameFor(ids(3)), Buffer.from([0x0a, 0x7f])]);
    for (const leaseId of good.slice(0, 4)) {
      wire.give(frameFor([leaseId]));
      await settle();
    }
    // The maximum number of calls is running, so these frames are read and wait.
    wire.give(frameFor(good.slice(4)), broken, frameFor(ids(3)));
    await settle();
    expect(wire.ended).to.equal(undefined);
    engine.answerAll();
    await settle();
    engine.answerAll();
    await settle();
    expect(wire.told).to.deep.equal(good);
    expect(wire.ended?.error).to.include({ code: 'invalid_request', field: 'heartbeats[3]' });
    expect([engine.heard, wire.unread]).to.deep.equal([7, 1]);
    expect(engine.leaseSubscriptions.subscriptions).to.equal(0);
  });

  it('ends with the error of the database, after the verdicts that were ready', async () => {
    const [good, bad] = [one(), one()];
    wire.takes = false;
    wire.give(frameFor([one()]));
    await settle();
    wire.give(frameFor([good]));
    await settle();
    wire.give(frameFor([bad]));
    await settle();
    const [first, second, third] = engine.calls;
    first?.answer();
    await settle();
    second?.answer();
    third?.fail(new DomainError('unavailable', 'the database has gone'));
    await settle();
    expect(wire.ended).to.equal(undefined);
    wire.give(frameFor([one()]));
    wire.take();
    await settle();
    expect(wire.told).to.include(good).and.not.include(bad);
    expect(wire.ended?.error).to.include({ code: 'unavailable' });
    expect(engine.calls).to.have.length(3);
  });

  it('repeats a call to an overloaded engine, and hides the overload from the client', async () => {
    const leaseIds = ids(2);
    wire.give(frameFor(leaseIds));
    await settle();
    engine.calls[0]?.fail(new DomainError('overloaded', 'too many calls are waiting'));
    wire.give(frameFor([one()]));
    await settle();
    expect(engine.calls).to.have.length(1);
    while (engine.calls.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(engine.calls[1]?.of).to.have.length(3);
    engine.answerAll();
    await settle();
    expect(wire.told.slice(0, 2)).to.deep.equal(leaseIds);
    expect(wire.ended).to.equal(undefined);
  });

  it('sends nothing after an abort, calls nothing and unsubscribes from its leases', async () => {
    const kept = one();
    wire.give(frameFor([kept]));
    await settle();
    engine.answerAll();
    await settle();
    wire.give(frameFor(ids(2)));
    await settle();
    const call = engine.calls[1];
    expect(call?.signal?.aborted).to.equal(false);
    wire.leave();
    expect(call?.signal?.aborted).to.equal(true);
    call?.answer();
    engine.leaseSubscriptions.publish([kept]);
    await settle();
    expect(wire.told).to.deep.equal([kept]);
    expect([engine.looks.length, wire.asks, wire.ended]).to.deep.equal([0, true, undefined]);
    expect(engine.leaseSubscriptions.subscriptions).to.equal(0);
  });

  it('ends for an unexpected error, and no other stream does', async () => {
    const other = connect();
    wire.give(frameFor(ids(2)));
    other.give(frameFor([one()]));
    await settle();
    // One verdict is missing, and one cannot be encoded.
    engine.calls.find(({ of }) => of.length === 2)?.answer([extended()]);
    const third = connect();
    third.give(frameFor([one()]));
    await settle();
    engine.calls[2]?.answer([{ kind: 'lost' } as Verdict]);
    await settle();
    expect(wire.ended?.error).to.be.instanceOf(Error);
    expect(third.ended?.error).to.be.instanceOf(TypeError);
    engine.answerAll();
    await settle();
    expect(other.verdicts).to.have.length(1);
    other.leave();
  });

  describe('unsolicited verdicts', () => {
    const keep = async (on: ScriptedStream, leaseIds: readonly string[]) => {
      on.give(frameFor(leaseIds));
      await settle();
      engine.answerAll();
      await settle();
      on.frames.length = 0;
    };

    it('reports changes of a lease by other actors, and the loss of a lease only once', async () => {
      const [a, b] = [one(), one()];
      await keep(wire, [a, b]);
      engine.leaseSubscriptions.publish([a]);
      engine.leaseSubscriptions.publish([b, a, one()]);
      await settle();
      const [look] = engine.looks;
      expect(look?.of).to.deep.equal([a, b]);
      look?.answer([
        { kind: 'lost', code: 'lease_not_active', detail: '' },
        extended({ cancelRequested: true }),
      ]);
      await settle();
      const told = Object.fromEntries(wire.verdicts.map(({ leaseId, outcome }) => [leaseId, outcome.value]));
      expect(told[a]).to.include({ code: 'lease_not_active' });
      expect(told[b]).to.include({ cancelRequested: true });
      engine.leaseSubscriptions.publish([a, b]);
      await settle();
      expect(engine.looks[1]?.of).to.deep.equal([b]);
    });

    it('reads the leases of many streams in one query', async () => {
      const { streamHeartbeats: open } = streamHeartbeats(engine);
      const streams = Array.from({ length: 20 }, () => new ScriptedStream(open));
      const leaseIds = ids(20);
      for (const [i, stream] of streams.entries()) await keep(stream, [leaseIds[i] as string]);
      engine.leaseSubscriptions.publish(leaseIds);
      await settle();
      expect(engine.looks.map(({ of }) => of)).to.deep.equal([leaseIds]);
      engine.looks[0]?.answer();
      await settle();
      expect(streams.map(({ told }) => told)).to.deep.equal(leaseIds.map((leaseId) => [leaseId]));
      for (const stream of streams) stream.leave();
    });

    it('delays unsolicited verdicts while the client does not read', async () => {
      const kept = ids(10);
      await keep(wire, kept);
      wire.takes = false;
      engine.eager = true;
      wire.give(...Array.from({ length: 30 }, () => frameFor(ids(1_000))));
      for (let n = 0; n < 20; n++) await settle();
      engine.leaseSubscriptions.publish(kept);
      await settle();
      expect(engine.looks).to.deep.equal([]);
      wire.take();
      for (let n = 0; n < 50 && engine.looks.length === 0; n++) await settle();
      expect(engine.looks.flatMap(({ of }) => of)).to.deep.equal(kept);
    });

    it('drops unsolicited verdicts that cannot be read, and continues', async () => {
      const leaseId = one();
      await keep(wire, [leaseId]);
      engine.leaseSubscriptions.publish([leaseId]);
      await settle();
      engine.looks[0]?.fail(new DomainError('unavailable', 'the database has gone'));
      await settle();
      expect(wire.ended).to.equal(undefined);
      engine.leaseSubscriptions.publish([leaseId]);
      await settle();
      engine.looks[1]?.answer();
      await settle();
      expect(wire.told).to.deep.equal([leaseId]);
    });

    it("notifies every lease of the server's stop, answers calls in flight, and ends with OK", async () => {
      const kept = ids(2_500);
      await keep(wire, kept);
      wire.give(frameFor([one()]));
      await settle();
      const pending = engine.calls.at(-1);
      engine.draining = true;
      await engine.leaseSubscriptions.drain();
      wire.give(frameFor([one()]), frameFor([one()]));
      for (let n = 0; n < 10; n++) {
        await settle();
        for (const look of engine.looks) if (!look.answered) look.answer();
      }
      for (const { of } of engine.looks) expect(of).to.have.length.at.most(1_000);
      expect(wire.told.sort()).to.deep.equal(kept);
      expect(wire.ended).to.equal(undefined);
      pending?.answer();
      engine.answerAll();
      await settle();
      expect(wire.ended).to.deep.equal({ error: undefined });
      expect(wire.unread).to.equal(1);
      const drains = wire.verdicts.map(({ outcome }) => outcome.case === 'extended' && outcome.value.drain);
      expect(drains.every(Boolean)).to.equal(true);
    });

    it("limits the time for notices of the server's stop", async () => {
      await keep(wire, ids(1_500));
      engine.draining = true;
      const since = performance.now();
      await engine.leaseSubscriptions.drain();
      while (!wire.ended && performance.now() - since < 5_000)
        await new Promise((resolve) => setTimeout(resolve, 20));
      expect(wire.ended).to.deep.equal({ error: undefined });
      expect(performance.now() - since).to.be.within(1_000, 4_500);
    });

    it('ends at once if the server is stopping already', async () => {
      engine.draining = true;
      await engine.leaseSubscriptions.drain();
      const late = connect();
      await settle();
      expect(late.ended).to.deep.equal({ error: undefined });
    });
  });
});
