/**
 * Thousands of requests that wait for streams: their cost while no job arrives, and which of them gets a job.
 */
import { expect } from 'chai';
import type { LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { engineOn, engineSettings, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, expectGranted } from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

const waiters = 5_000;
const waitMs = 60_000;
/** Long enough for two sweeps, and for every waiter to be woken twice, if any were. */
const watchMs = 5_000;

/** Wraps the database: counts statements and transactions. */
function counted(store: TestDatabase) {
  const count = { asked: 0 };
  const database = new Proxy(store.database, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      if (name === 'query' || name === 'transaction') count.asked++;
      return value.bind(target);
    },
  });
  return { count, database };
}

onEveryEngine((kind) => {
  // Waiting happens in the server, which is the same for both engines.
  if (kind.name === 'embedded') return;

  describe('five thousand waiting requests, each for a stream of its own and a shared one', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let count: { asked: number };
    const outcomes: Promise<LeaseOutcome>[] = [];
    before(async () => {
      store = await kind.open();
      const counting = counted(store);
      count = counting.count;
      engine = engineOn(counting.database, { ...engineSettings, capacityTotal: 1_000_000 });
      // All of these streams exist and are empty.
      await submitted(engine, { stream: 'of all' }, { stream: 'of 7' });
      expectGranted(await acquire(engine, 'w', { streams: ['of all'] }));
      expectGranted(await acquire(engine, 'w', { streams: ['of 7'] }));
      for (let i = 0; i < waiters; i++) {
        outcomes.push(acquire(engine, `worker ${i}`, { streams: [`of ${i}`, 'of all'], wait_ms: waitMs }));
      }
      // A denied request joins the wait queue. Once all have joined, no statement follows.
      await eventually(
        'all wait',
        async () => engine.services.acquirer.waiting === waiters || undefined,
        60_000,
      );
    });
    after(async () => {
      await engine.stop();
      await Promise.all(outcomes);
      await store.close();
    });

    it('sends no statement while no job arrives, except to find streams with jobs', async () => {
      const before = count.asked;
      await new Promise((resolve) => setTimeout(resolve, watchMs));
      expect(count.asked - before).to.be.at.most(4);
    });

    it('wakes few waiters for a job that would suit all of them', async () => {
      const before = count.asked;
      const [job] = await submitted(engine, { stream: 'of all' });
      const grant = expectGranted(await (outcomes[0] as Promise<LeaseOutcome>));
      expect([grant.job.jobId, grant.lease.workerId]).to.deep.equal([job?.jobId, 'worker 0']);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(count.asked - before).to.be.at.most(10);
    });

    it("wakes only waiters that ask for the job's stream", async () => {
      const before = count.asked;
      const [job] = await submitted(engine, { stream: 'of 7' });
      const grant = expectGranted(await (outcomes[7] as Promise<LeaseOutcome>));
      expect([grant.job.jobId, grant.lease.workerId]).to.deep.equal([job?.jobId, 'worker 7']);
      // The submission, the woken request's transaction, and periodic statements of the server.
      expect(count.asked - before).to.be.at.most(10);
    });
  });
});
