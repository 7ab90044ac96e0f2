/** Requests that wait for a job: what wakes which of them, and what canceled ones leave behind. */
import { expect } from 'chai';
import type { LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import { type Channel, PostgresChannel } from '../../../src/store/connection/notify-channel.ts';
import type { Sql, TransactionSql } from '../../../src/store/connection/sql.ts';
import type { Database } from '../../../src/store/database.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import {
  caller,
  engineOn,
  engineSettings,
  letTimePass,
  silentLog,
  submitted,
  type TestedEngine,
} from '../../support/jobs.ts';
import {
  acquire,
  acquired,
  codeOf,
  expectDenied,
  expectGranted,
  releaseFor,
  wipe,
} from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

/**
 * Less than the two seconds between sweeps of the wait queue, so a waiter within this time was woken by an
 * event.
 */
const soonMs = 1_900;
const waitMs = 20_000;

/**
 * Wraps the database: counts requests for jobs, and runs `afterCommit` after a query for jobs or a
 * transaction.
 */
function watched(database: Database) {
  const watch = { asks: 0, afterCommit: async () => {} };
  const count = (sql: Sql): Sql => ({
    query: (text, params, signal) => {
      // The sixth parameter is the number of wanted jobs, which is the number of requests in the batch.
      if (text.includes('skip locked') && text.includes('recursive')) watch.asks += Number(params[5]);
      return sql.query(text, params, signal);
    },
  });
  const query: Sql['query'] = async (text, params, signal) => {
    const rows = await count(database).query<never>(text, params, signal);
    if (text.includes('recursive')) await watch.afterCommit();
    return rows;
  };
  const transaction = async <T>(
    work: (sql: TransactionSql) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> => {
    const answer = await database.transaction(
      (sql) => work({ ...count(sql), em: (given) => sql.em(given), seal: () => sql.seal() }),
      signal,
    );
    await watch.afterCommit();
    return answer;
  };
  const counting = new Proxy(database, {
    get: (target, name) => {
      if (name === 'transaction') return transaction;
      if (name === 'query') return query;
      const value = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return { watch, database: counting };
}

/** A server's own channel, whose messages the test receives after the server. */
function overheard(url: string, onMessage: (text: string) => void) {
  const channel = new PostgresChannel(url, silentLog);
  let isHeard = () => {};
  const listening = new Promise<void>((resolve) => {
    isHeard = resolve;
  });
  const told: Channel = {
    start: (onServersMessage, onListening) =>
      channel.start(
        (text) => {
          onServersMessage(text);
          onMessage(text);
        },
        () => {
          onListening?.();
          isHeard();
        },
      ),
    send: (text) => channel.send(text),
    stop: () => channel.stop(),
  };
  return { channel: told, listening };
}

const standsIn = ({ services: { acquirer } }: TestedEngine, count: number) =>
  eventually(`${count} stand in the line`, async () => (acquirer.waiting >= count ? true : undefined));

describe('an acquire that waits', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let watch: ReturnType<typeof watched>['watch'];
    before(async () => {
      store = await kind.open();
    });
    after(() => store.close());
    beforeEach(async () => {
      await wipe(store.database);
      const counted = watched(store.database);
      watch = counted.watch;
      engine = engineOn(counted.database);
    });
    afterEach(() => engine.stop());

    /** Starts a request, and resolves when it was denied and has joined the wait queue. */
    async function waiting(workerId: string, more: object = {}) {
      const before = engine.services.acquirer.waiting;
      const outcome = acquire(engine, workerId, { wait_ms: waitMs, ...more });
      await standsIn(engine, before + 1);
      return { outcome };
    }

    /** The time from the end of `begin` to the grant. */
    async function timed(outcome: Promise<LeaseOutcome>, begin: () => Promise<unknown>) {
      await begin();
      const since = performance.now();
      const grant = expectGranted(await outcome);
      return { grant, ms: performance.now() - since };
    }

    it('wakes for a submitted job', async () => {
      const { outcome } = await waiting('w');
      const { grant, ms } = await timed(outcome, () => submitted(engine, { cost_units: 3 }));
      expect(grant.job.costUnits).to.equal(3);
      expect(ms).to.be.below(soonMs);
    });

    it('wakes for a unique job although an earlier waiter may not have it', async () => {
      await submitted(engine, {});
      await acquired(engine, 'w1');
      const barred = await waiting('w1');
      const { outcome } = await waiting('w2');
      const { grant, ms } = await timed(outcome, () => submitted(engine, { unique: true }));
      expect(grant.lease.workerId).to.equal('w2');
      expect(ms).to.be.below(soonMs);
      engine.services.acquirer.stopWaiting();
      expectDenied(await barred.outcome);
    });

    it('wakes when a release, an expiry or a higher total frees units', async () => {
      await submitted(
        engine,
        { cost_units: 100 },
        { cost_units: 100 },
        { cost_units: 100 },
        { cost_units: 100 },
      );
      const first = await acquired(engine, 'w1');
      const second = await timed((await waiting('w2')).outcome, () =>
        engine.leases.release(releaseFor(first), caller),
      );
      expect(second.ms, 'after a release').to.be.below(soonMs);
      const third = await timed((await waiting('w3')).outcome, async () => {
        await letTimePass(store.database, 60_001);
        await engine.services.reaper.runOnce();
      });
      expect(third.ms, 'after an expiry').to.be.below(soonMs);
      const fourth = await timed((await waiting('w4')).outcome, () =>
        engine.capacity.set({ total: 200 }, caller),
      );
      expect(fourth.ms, 'after more capacity').to.be.below(soonMs);
    });

    it('wakes for a job that returns: unclaimed, retried, or after its backoff', async () => {
      const [job] = await submitted(engine, { max_attempts: 9, retry_backoff_s: 5 });
      const jobId = job?.jobId ?? '';
      await engine.jobs.cancel(jobId, {}, caller);
      const first = await timed((await waiting('w')).outcome, () => engine.jobs.retry(jobId, {}, caller));
      expect(first.ms, 'after a retry').to.be.below(soonMs);
      await engine.leases.release(releaseFor(first.grant, { status: 'FAILED', retryable: true }), caller);
      const second = await timed((await waiting('w')).outcome, async () => {
        await letTimePass(store.database, 5_001);
        await engine.services.reaper.runOnce();
      });
      expect(second.ms, 'after its backoff').to.be.below(soonMs);
      await engine.leases.release(releaseFor(second.grant, { status: 'FAILED', retryable: true }), caller);
      await letTimePass(store.database, 600_000);
      await engine.services.reaper.runOnce();
      await engine.jobs.claim({ worker_id: 'x' }, caller);
      const third = await timed((await waiting('w')).outcome, () =>
        engine.jobs.updateStatus(jobId, { state: 'QUEUED' }, caller),
      );
      expect(third.ms, 'after it was given back').to.be.below(soonMs);
    });

    it('wakes for a job that is submitted while the request is being denied', async () => {
      let submits = 0;
      watch.afterCommit = async () => {
        // The denial was decided before the submission, and reaches its caller afterwards.
        if (submits++ === 0) await submitted(engine, {});
      };
      const since = performance.now();
      expectGranted(await acquire(engine, 'w', { wait_ms: waitMs }));
      expect(performance.now() - since).to.be.below(soonMs);
    });

    it('denies at the end of wait_ms with the same reason as without waiting', async () => {
      const since = performance.now();
      const denied = expectDenied(await acquire(engine, 'w', { wait_ms: 300 }));
      expect(denied.reason).to.equal('No jobs available');
      expect(performance.now() - since).to.be.at.least(295);
    });

    it('denies at once when the server stops', async () => {
      const { outcome } = await waiting('w');
      await engine.drain();
      expect(expectDenied(await outcome).reason).to.equal('No jobs available');
    });

    it('serves waiters in the order of their requests', async () => {
      const outcomes: Promise<void>[] = [];
      const served: string[] = [];
      for (const workerId of ['a', 'b', 'c', 'd']) {
        const { outcome } = await waiting(workerId);
        outcomes.push(outcome.then((one) => void served.push(expectGranted(one).lease.workerId)));
      }
      for (let n = 0; n < 4; n++) {
        await submitted(engine, {});
        await eventually(`${n + 1} served`, async () => (served.length > n ? true : undefined));
      }
      expect(served).to.deep.equal(['a', 'b', 'c', 'd']);
      await Promise.all(outcomes);
    });

    it('wakes one of twenty waiters for one job, and at most two after it', async () => {
      const outcomes: Promise<LeaseOutcome>[] = [];
      for (let i = 0; i < 20; i++) outcomes.push((await waiting(`w${i}`)).outcome);
      const before = watch.asks;
      await submitted(engine, {});
      await Promise.race(outcomes);
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(watch.asks - before).to.be.within(1, 3);
      await engine.drain();
      const kinds = (await Promise.all(outcomes)).map((outcome) => outcome.kind);
      expect(kinds.filter((one) => one === 'granted')).to.have.length(1);
    });

    it('forgets canceled waiters and grants the job to the next one', async () => {
      const gone = new AbortController();
      const codes: Promise<string>[] = [];
      for (let i = 0; i < 10; i++) {
        const call = engine.leases.acquire(
          { worker_id: `gone${i}`, wait_ms: waitMs },
          { ...caller, signal: gone.signal },
        );
        codes.push(codeOf(call));
        await standsIn(engine, i + 1);
      }
      const { outcome } = await waiting('stays');
      gone.abort();
      expect(new Set(await Promise.all(codes))).to.deep.equal(new Set(['canceled']));
      const { grant, ms } = await timed(outcome, () => submitted(engine, {}));
      expect(grant.lease.workerId).to.equal('stays');
      expect(ms).to.be.below(soonMs);
    });

    if (kind.name === 'postgresql') {
      /** Starts two more servers; `onMessage` receives the messages of the second. */
      async function twoServers(onMessage: (text: string) => void) {
        const url = store.options.url ?? '';
        const servers: { engine: TestedEngine; close(): Promise<void> }[] = [];
        const first = watched(await openDatabase(store.options));
        const databases = [first.database, await openDatabase(store.options)];
        for (const [i, database] of databases.entries()) {
          const { channel, listening } = overheard(url, i === 0 ? () => {} : onMessage);
          const one = engineOn(database, engineSettings, channel);
          one.start();
          await listening;
          const close = async () => {
            await one.stop();
            await database.close();
          };
          servers.push({ engine: one, close });
        }
        const [here, there] = servers.map((server) => server.engine);
        if (!here || !there) throw new Error('two servers were started');
        const close = () => Promise.all(servers.map((server) => server.close()));
        return { here, there, watch: first.watch, close };
      }

      it('wakes for jobs that another server commits before it knows of the waiters', async () => {
        const servers = await twoServers(() => {});
        const { here, there } = servers;
        try {
          let looks = 0;
          servers.watch.afterCommit = async () => {
            // The requests were denied and are about to announce that they wait. The other server does not
            // notify them of these jobs.
            if (looks++ === 0) await submitted(there, {}, {}, {});
          };
          const since = performance.now();
          const outcomes = ['w1', 'w2', 'w3'].map((workerId) => acquire(here, workerId, { wait_ms: waitMs }));
          for (const outcome of outcomes) expectGranted(await outcome);
          expect(performance.now() - since).to.be.below(soonMs);
        } finally {
          await servers.close();
        }
      });

      it('wakes for jobs and units of another server', async () => {
        let announcements = 0;
        const servers = await twoServers((text) => {
          if (text.includes('"waiting"')) announcements++;
        });
        const { here, there } = servers;
        try {
          // Waits for the announcement of the waiter, whose delay is not part of the measurement.
          const first = acquire(here, 'w', { wait_ms: waitMs });
          await eventually('the other has heard', async () => (announcements > 0 ? true : undefined));
          await submitted(there, { cost_units: 100 });
          let held = expectGranted(await first);
          const times: number[] = [];
          for (let round = 0; round < 3; round++) {
            await submitted(there, { cost_units: 100 });
            const next = acquire(here, 'w', { wait_ms: waitMs });
            await standsIn(here, 1);
            const since = performance.now();
            await there.leases.release(releaseFor(held), caller);
            held = expectGranted(await next);
            times.push(performance.now() - since);
          }
          await there.leases.release(releaseFor(held), caller);
          for (let round = 0; round < 3; round++) {
            const next = acquire(here, 'w', { wait_ms: waitMs });
            await standsIn(here, 1);
            const since = performance.now();
            await submitted(there, {});
            expectGranted(await next);
            times.push(performance.now() - since);
          }
          // The sweep after two seconds would hide a lost message.
          expect(Math.max(...times), `of ${times.map(Math.round)}`).to.be.below(1_500);
        } finally {
          await servers.close();
        }
      });
    }
  });
});
