import { expect } from 'chai';
import type { Verdict } from '../../../src/domain/leases/lease.ts';
import {
  type LeaseListener,
  LeaseSubscriptions,
  type Subscription,
} from '../../../src/engine/leases/lease-subscriptions.ts';
import { newId } from '../../../src/lib/uuid.ts';

const extended = (ttlRemainingMs = 60_000): Verdict => ({
  kind: 'extended',
  expiresAtMs: 0,
  ttlRemainingMs,
  cancelRequested: false,
});
const lost: Verdict = { kind: 'lost', code: 'lease_not_active', detail: '' };
const refused = (code: 'worker_mismatch' | 'token_mismatch'): Verdict => ({ kind: 'lost', code, detail: '' });

const ids = (count: number): string[] => Array.from({ length: count }, () => newId());

/** A stream that records the lease ids it is notified of. */
class Listener implements LeaseListener {
  readonly heard: string[] = [];
  drained = 0;
  readonly #follower: Subscription;

  constructor(news: LeaseSubscriptions) {
    this.#follower = news.subscribe(this);
  }

  onLeasesChanged(leaseIds: readonly string[]): void {
    this.heard.push(...leaseIds);
  }

  onDrained(): void {
    this.drained++;
  }

  keep(leaseIds: readonly string[], verdict = extended()): void {
    this.#follower.onHeartbeat(
      leaseIds.map((leaseId) => ({ leaseId })),
      leaseIds.map(() => verdict),
    );
  }

  forget(leaseIds: readonly string[]): void {
    this.#follower.unsubscribe(leaseIds);
  }

  close(): void {
    this.#follower.close('gone');
  }
}

describe('LeaseSubscriptions', () => {
  let nowMs: number;
  let news: LeaseSubscriptions;
  beforeEach(() => {
    nowMs = 1_000;
    news = new LeaseSubscriptions({ nowMs: () => nowMs });
  });

  it('notifies only the stream that sent the last heartbeat of a lease', () => {
    const [a, b, c] = ids(3) as [string, string, string];
    const [first, second] = [new Listener(news), new Listener(news)];
    first.keep([a, b]);
    second.keep([b]);
    news.publish([a, b, c]);
    expect([first.heard, second.heard]).to.deep.equal([[a], [b]]);
  });

  it('calls onSubscribe for each new subscription', () => {
    const counts: number[] = [];
    const asking: LeaseSubscriptions = new LeaseSubscriptions({
      onSubscribe: () => counts.push(asking.subscriptions),
    });
    const first = new Listener(asking);
    new Listener(asking);
    first.close();
    new Listener(asking);
    expect(counts).to.deep.equal([1, 2, 2]);
  });

  it('notifies a stream of many leases in one call', () => {
    let calls = 0;
    const leaseIds = ids(100);
    const follower = news.subscribe({ onLeasesChanged: () => calls++, onDrained: () => {} });
    follower.onHeartbeat(
      leaseIds.map((leaseId) => ({ leaseId })),
      leaseIds.map(() => extended()),
    );
    news.publish(leaseIds);
    expect(calls).to.equal(1);
  });

  it('notifies neither a closed stream nor one that opened after it', () => {
    const leaseIds = ids(3);
    const closed = new Listener(news);
    closed.keep(leaseIds);
    closed.close();
    const next = new Listener(news);
    news.publish(leaseIds);
    expect([closed.heard, next.heard]).to.deep.equal([[], []]);
    next.keep(leaseIds);
    closed.keep(leaseIds);
    news.publish(leaseIds);
    expect([closed.heard, next.heard]).to.deep.equal([[], leaseIds]);
  });

  it('drops a lost lease, but not for a verdict on another stream', () => {
    const [a, b, c] = ids(3) as [string, string, string];
    const [owner, stranger] = [new Listener(news), new Listener(news)];
    owner.keep([a, b, c]);
    stranger.keep([a], lost);
    stranger.forget([a]);
    owner.keep([b], lost);
    owner.forget([c]);
    news.publish([a, b, c]);
    expect(owner.heard).to.deep.equal([a]);
    owner.keep([b]);
    news.publish([b]);
    expect(owner.heard).to.deep.equal([a, b]);
  });

  it('keeps a lease for its stream when another worker or a wrong token was refused', () => {
    const [a, b] = ids(2) as [string, string];
    const shared = new Listener(news);
    shared.keep([a, b]);
    shared.keep([a], refused('worker_mismatch'));
    shared.keep([b], refused('token_mismatch'));
    news.publish([a, b]);
    expect(shared.heard).to.deep.equal([a, b]);
  });

  it('finds each of 10,000 leases with its own stream', () => {
    const leaseIds = ids(10_000);
    const streams = Array.from({ length: 10 }, () => new Listener(news));
    for (const turn of [1, 0]) leaseIds.forEach((id, i) => void streams[(i + turn) % 10]?.keep([id]));
    news.publish(leaseIds);
    streams.forEach((stream, n) => {
      expect(stream.heard).to.deep.equal(leaseIds.filter((_, i) => i % 10 === n));
    });
  });

  it('records when and how the last stream of a lease closed', () => {
    const [kept, moved, unknown] = ids(3) as [string, string, string];
    const [stream, other] = [new Listener(news), new Listener(news)];
    stream.keep([kept, moved]);
    expect(news.lastDisconnectOf(kept)).to.equal(undefined);
    other.keep([moved]);
    stream.close();
    nowMs += 5_000;
    expect(news.lastDisconnectOf(kept)).to.deep.equal({ how: 'gone', agoMs: 5_000 });
    expect([
      news.lastDisconnectOf(moved),
      news.lastDisconnectOf(unknown),
      news.lastDisconnectOf(null),
    ]).to.deep.equal([undefined, undefined, undefined]);
    // Other leases are added and the tables are rebuilt before the record expires.
    other.keep(ids(50_000));
    expect(news.lastDisconnectOf(kept)?.how).to.equal('gone');
  });

  it('keeps only a bounded number of disconnects', () => {
    const [early, late] = ids(2) as [string, string];
    for (const leaseId of [early, ...ids(20_000), late]) {
      const stream = new Listener(news);
      stream.keep([leaseId]);
      stream.close();
    }
    expect([news.lastDisconnectOf(early), news.lastDisconnectOf(late)?.how]).to.deep.equal([
      undefined,
      'gone',
    ]);
  });

  it('reuses the memory of leases that ended', () => {
    const stream = new Listener(news);
    stream.keep(ids(10_000));
    const slots = news.slots;
    for (let round = 0; round < 20; round++) {
      // Each round's leases end without a message. The next round begins over a minute after their expiry.
      nowMs += 121_000;
      stream.keep(ids(10_000));
    }
    expect(news.slots).to.be.at.most(2 * slots);
  });

  it('reuses the memory of closed streams, and keeps the leases of open ones', () => {
    const stays = new Listener(news);
    const kept = ids(2_000);
    stays.keep(kept);
    for (let round = 0; round < 40; round++) {
      // The leases of a closed stream are remembered until a minute after their expiry.
      nowMs += 121_000;
      stays.keep(kept);
      const stream = new Listener(news);
      stream.keep(ids(5_000));
      stream.close();
    }
    expect(news.slots).to.be.below(7_000 * 6);
    news.publish(kept);
    expect(stays.heard).to.deep.equal(kept);
  });

  it('notifies each stream of all its leases on drain, and then calls onDrained', async () => {
    const [first, second, idle] = [new Listener(news), new Listener(news), new Listener(news)];
    const [a, b] = [ids(3_000), ids(3_000)];
    first.keep(a);
    second.keep(b);
    first.keep(b.slice(0, 10));
    second.keep(a.slice(0, 20), lost);
    await news.drain();
    await news.drain();
    expect(first.heard.sort()).to.deep.equal([...a, ...b.slice(0, 10)].sort());
    expect(second.heard.sort()).to.deep.equal(b.slice(10).sort());
    expect([first.drained, second.drained, idle.drained]).to.deep.equal([1, 1, 1]);
    expect(new Listener(news).drained).to.equal(1);
  });

  it('yields to other tasks during a drain', async () => {
    const stream = new Listener(news);
    stream.keep(ids(5_000));
    let turns = 0;
    let over = false;
    const count = () => {
      turns++;
      if (!over) setImmediate(count);
    };
    setImmediate(count);
    await news.drain();
    over = true;
    expect(turns).to.be.above(100);
  });
});
