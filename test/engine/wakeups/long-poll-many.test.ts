/** Thousands of claims that wait for streams: what they cost while nothing comes, and who gets what does. */
import { expect } from 'chai';
import type { LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import type { Engine } from '../../../src/engine/engine.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { engineOn, engineSettings, submitted } from '../../support/jobs.ts';
import { acquire, expectGranted } from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

const waiters = 5_000;
const waitMs = 60_000;
/** Long enough for two sweeps, and for everybody to be woken twice, if anybody were. */
const watchMs = 5_000;

/** The same database, which counts the statements and transactions that it is asked for. */
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
  // Who waits does so on the server, which is the same on both.
  if (kind.name === 'embedded') return;

  describe('five thousand claims that wait, each for a stream of its own and one of all', () => {
    let store: TestDatabase;
    let engine: Engine;
    let count: { asked: number };
    const outcomes: Promise<LeaseOutcome>[] = [];
    before(async () => {
      store = await kind.open();
      const counting = counted(store);
      count = counting.count;
      engine = engineOn(counting.database, { ...engineSettings, capacityTotal: 1_000_000 });
      // Every one of these streams is known, and empty.
      await submitted(engine, { stream: 'of all' }, { stream: 'of 7' });
      expectGranted(await acquire(engine, 'w', { streams: ['of all'] }));
      expectGranted(await acquire(engine, 'w', { streams: ['of 7'] }));
      for (let i = 0; i < waiters; i++) {
        outcomes.push(acquire(engine, `worker ${i}`, { streams: [`of ${i}`, 'of all'], wait_ms: waitMs }));
      }
      // Whoever has asked in vain stands in the line; when all do, nothing more is asked.
      await eventually('all wait', async () => engine.acquirer.waiting === waiters || undefined, 60_000);
    });
    after(async () => {
      await engine.stop();
      await Promise.all(outcomes);
      await store.close();
    });

    it('ask nothing of the database while nothing comes, but which streams have something', async () => {
      const before = count.asked;
      await new Promise((resolve) => setTimeout(resolve, watchMs));
      expect(count.asked - before).to.be.at.most(4);
    });

    it('do not all wake for a job that would do for all of them', async () => {
      const before = count.asked;
      const [job] = await submitted(engine, { stream: 'of all' });
      const grant = expectGranted(await (outcomes[0] as Promise<LeaseOutcome>));
      expect([grant.job.jobId, grant.lease.workerId]).to.deep.equal([job?.jobId, 'worker 0']);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(count.asked - before).to.be.at.most(10);
    });

    it('wake for a job only those that ask for its stream', async () => {
      const before = count.asked;
      const [job] = await submitted(engine, { stream: 'of 7' });
      const grant = expectGranted(await (outcomes[7] as Promise<LeaseOutcome>));
      expect([grant.job.jobId, grant.lease.workerId]).to.deep.equal([job?.jobId, 'worker 7']);
      // The submission, the transaction of the one that was woken, and what beats and sweeps may just have come.
      expect(count.asked - before).to.be.at.most(10);
    });
  });
});
