/** The metrics of an engine's services, with a moved clock. */
import { expect } from 'chai';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { beatOwner, granted } from '../support/file-lease-helpers.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../support/jobs.ts';
import { acquired, releaseFor } from '../support/lease-helpers.ts';
import { MetricsText } from '../support/metrics-text.ts';

describe('metrics of an engine', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    const read = () => new MetricsText(engine.services.metrics.registry.render());
    const handled = (reaper: string, what: string) =>
      read().value('leasehold_reaper_handled_total', { reaper, what });
    const lag = (reaper: string, what: string) =>
      read().value('leasehold_reaper_lag_seconds_sum', { reaper, what });

    it('measures how late leases, claims and delayed jobs were handled', async () => {
      const soon = new Date(Date.now() + 60_000).toISOString();
      await submitted(engine, { addon_id: 'leased' }, { addon_id: 'claimed' }, { run_at: soon });
      await engine.leases.acquire({ worker_id: 'w', addon_id: 'leased' }, caller);
      await engine.jobs.claim({ worker_id: 'w', addon_id: 'claimed' }, caller);
      await letTimePass(store.database, 60_000 + 25_000);
      await engine.services.reaper.runOnce();
      for (const what of ['lease_expired', 'claim_lost', 'job_ready']) {
        expect(handled('jobs', what), what).to.equal(1);
        expect(lag('jobs', what), what).to.be.within(24, 85);
      }
      await engine.services.reaper.runOnce();
      expect(handled('jobs', 'lease_expired')).to.equal(1);
    });

    const jobs = (outcome: string) => read().value('leasehold_jobs_total', { outcome }) ?? 0;
    const ended = () => ['done', 'failed', 'canceled', 'timeout'].map(jobs);

    it('counts jobs by outcome, and dead letters, once each (B13)', async () => {
      const filter = { addon_id: 'a', retry_backoff_s: 0 };
      await submitted(engine, filter, filter, { ...filter, stream: 's', max_attempts: 2 }, filter);
      expect(read().value('leasehold_jobs_submitted_total')).to.equal(4);
      const [first, second] = [await acquired(engine, 'w'), await acquired(engine, 'w')];
      // One release completes on the fast path, and one is decided.
      await engine.leases.end(releaseFor(first), caller);
      await engine.leases.release({ ...releaseFor(second), error: 'but' }, caller);
      expect(ended()).to.deep.equal([2, 0, 0, 0]);
      for (let attempt = 1; attempt <= 2; attempt++) {
        expect(jobs('failed'), `before attempt ${attempt}`).to.equal(0);
        const grant = await acquired(engine, 'w', { streams: ['s'] });
        const error = { status: 'FAILED', retryable: true, error: 'broken' } as const;
        await engine.leases.release({ ...releaseFor(grant), ...error }, caller);
      }
      expect(ended()).to.deep.equal([2, 1, 0, 0]);
      expect(read().value('leasehold_dead_letters_total')).to.equal(1);
      const [canceled] = await submitted(engine, { addon_id: 'b' });
      await engine.jobs.cancel(canceled?.jobId ?? '', {}, caller);
      expect(ended()).to.deep.equal([2, 1, 1, 0]);
      await acquired(engine, 'w');
      await letTimePass(store.database, 61_000);
      await engine.services.reaper.runOnce();
      expect(ended()).to.deep.equal([2, 1, 1, 1]);
      expect(read().value('leasehold_dead_letters_total')).to.equal(1);
    });

    it('measures job wait and lease duration, without repeated grants (B13)', async () => {
      await submitted(engine, { addon_id: 'one' }, { addon_id: 'two' });
      await store.database.query("update live_jobs set ready_at = ready_at - interval '70 seconds'", []);
      const one = { addon_id: 'one', request_id: 'r' };
      const grant = await acquired(engine, 'w', one);
      expect((await acquired(engine, 'w', one)).lease.leaseId).to.equal(grant.lease.leaseId);
      const [claimed] = await engine.jobs.claim({ worker_id: 'w' }, caller);
      const job = claimed?.jobId ?? '';
      await engine.leases.request({ job_id: job, request_id: 'q' }, caller);
      await engine.leases.request({ job_id: job, request_id: 'q' }, caller);
      expect(read().value('leasehold_job_wait_seconds_count')).to.equal(2);
      expect(read().value('leasehold_job_wait_seconds_bucket', { le: '60' })).to.equal(0);
      expect(read().value('leasehold_job_wait_seconds_bucket', { le: '300' })).to.equal(2);
      await letTimePass(store.database, 20_000);
      await engine.leases.end(releaseFor(grant), caller);
      expect(read().value('leasehold_job_run_seconds_sum')).to.be.within(20, 60);
      await letTimePass(store.database, 41_000);
      await engine.services.reaper.runOnce();
      expect(read().value('leasehold_job_run_seconds_count')).to.equal(2);
      expect(read().value('leasehold_job_run_seconds_sum')).to.be.within(81, 140);
    });

    it('measures how late dead file owners were handled', async () => {
      await granted(engine, 'ann', 'a.ts');
      await store.database.query(
        "update file_owners set expires_at = clock_timestamp() - interval '40 seconds'",
        [],
      );
      await store.database.query('update file_owners set check_at = expires_at', []);
      await engine.services.fileReaper.runOnce();
      expect(handled('files', 'owner_dead')).to.equal(1);
      expect(lag('files', 'owner_dead')).to.be.within(40, 100);
      expect(await beatOwner(engine, 'ann')).to.equal('owner_not_alive');
      expect(read().value('leasehold_heartbeats_total', { of: 'owners', verdict: 'lost' })).to.equal(1);
    });

    it('counts callers that wait for work', async () => {
      const gone = new AbortController();
      const command = { worker_id: 'w', wait_ms: 60_000 };
      const waiting = engine.leases.acquire(command, { ...caller, signal: gone.signal });
      while (engine.services.acquirer.waiting === 0) await new Promise((resolve) => setImmediate(resolve));
      expect(engine.services.acquirer.waiting).to.equal(1);
      gone.abort();
      await waiting.catch(() => {});
      expect(engine.services.acquirer.waiting).to.equal(0);
    });

    it('counts transactions that were retried', async () => {
      engine.services.database.meter = engine.services.metrics.database();
      let attempts = 0;
      await store.database.transaction(async (sql) => {
        if (++attempts < 3)
          await sql.query("do $$ begin raise exception 'lost' using errcode = '40001'; end $$", []);
      });
      const text = read();
      expect(text.value('leasehold_database_retries_total', { sqlstate: '40001' })).to.equal(2);
      expect(text.value('leasehold_database_duration_seconds_count', { kind: 'transaction' })).to.equal(1);
      expect(text.value('leasehold_database_failures_total', { kind: 'transaction' })).to.equal(undefined);
    });
  });
});
