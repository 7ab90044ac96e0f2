import { expect } from 'chai';
import type { Database } from '../../../src/store/database.ts';
import { QueueWatch } from '../../../src/telemetry/gauges/queue-watch.ts';

const row = {
  queued: 4,
  ready: 1,
  oldestMs: 5,
  deadLetters: 0,
  leases: 2,
  claims: 3,
  total: 100,
  busyRating: 5,
  used: 40,
  reserved: 7,
};

/** A database that answers when the test says so. */
class SlowDatabase {
  reads: PromiseWithResolvers<object[]>[] = [];

  query(): Promise<object[]> {
    const read = Promise.withResolvers<object[]>();
    this.reads.push(read);
    return read.promise;
  }

  answer(): void {
    this.reads.at(-1)?.resolve([row]);
  }
}

describe('QueueWatch', () => {
  let database: SlowDatabase;
  let queue: QueueWatch;
  let nowMs: number;
  beforeEach(() => {
    database = new SlowDatabase();
    nowMs = 0;
    queue = new QueueWatch(database as unknown as Database, 100, () => nowMs);
  });

  it('reads the queue once for all callers at the same time or within a second', async () => {
    const asked = Promise.all([queue.read(), queue.read(), queue.read()]);
    database.answer();
    const [one, two] = await asked;
    expect(one).to.deep.include({ queued: 4, ready: 1, oldestMs: 5, leases: 2, claims: 3 });
    expect(one?.capacity).to.include({ usable: 50, used: 40, available: 10, reserved: 7 });
    expect(two).to.equal(one);
    nowMs = 999;
    expect(await queue.read()).to.equal(one);
    expect(database.reads).to.have.length(1);
    nowMs = 1_000;
    const later = queue.read();
    database.answer();
    expect(await later).to.not.equal(one);
    expect(database.reads).to.have.length(2);
  });

  it('reports unknown after a second if the database hangs, and asks it once', async () => {
    expect(await queue.read()).to.equal(undefined);
    expect(await queue.read()).to.equal(undefined);
    expect(database.reads).to.have.length(1);
    database.answer();
    await Promise.resolve();
    expect((await queue.read())?.ready).to.equal(1);
  });

  it('reports unknown if the database fails, and reads the queue again', async () => {
    const failing = queue.read();
    database.reads[0]?.reject(new Error('away'));
    expect(await failing).to.equal(undefined);
    const again = queue.read();
    database.answer();
    expect((await again)?.ready).to.equal(1);
  });
});
