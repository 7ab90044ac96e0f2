/**
 * The guarantee: whatever fault a database has, its servers report it in time and can be stopped. A hung
 * database refuses nothing and closes nothing; it only stops answering. Foreign notifications on the database
 * do no harm.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect } from 'chai';
import type { JobEvent } from '../../gen/leasehold/v1/jobs_pb.js';
import { readMetrics } from '../support/metrics-text.ts';
import { findPostgres, startPostgres, type TestCluster } from '../support/postgres.ts';
import { startServer, until } from '../support/process.ts';
import { connect, createPostgresStore, openSession } from '../support/server-clients.ts';

const run = promisify(execFile);
/** Two seconds of timeout for the database, and a margin for a busy machine. */
const readyzLimitMs = 4_000;
/** Three seconds of timeout for the database, and the same margin. */
const doctorLimitMs = 6_000;
/** Five seconds for calls in flight, two for the database, and a margin for a busy machine. */
const stopLimitMs = 10_000;

/** The processes of a cluster: the first one, and all that it has started. */
async function processesOf(cluster: TestCluster): Promise<number[]> {
  const { pid } = cluster;
  if (pid === undefined) throw new Error('this PostgreSQL does not run');
  const { stdout } = await run('ps', ['-A', '-o', 'pid=', '-o', 'ppid=']);
  const rows = stdout
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number));
  return [pid, ...rows.filter(([, parent]) => parent === pid).map(([child]) => child as number)];
}

/** Suspends every process of a cluster until the returned function is called. */
async function freeze(cluster: TestCluster): Promise<() => void> {
  const frozen = new Set<number>();
  const thaw = () => {
    for (const pid of frozen) {
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // The process has ended in the meantime.
      }
    }
    frozen.clear();
  };
  try {
    // The first process is suspended first, so that the second listing finds all that it had time to start.
    for (let look = 0; look < 2; look++) {
      for (const pid of await processesOf(cluster)) {
        if (frozen.has(pid)) continue;
        process.kill(pid, 'SIGSTOP');
        frozen.add(pid);
      }
    }
  } catch (error) {
    thaw();
    throw error;
  }
  return thaw;
}

if (findPostgres()) {
  describe('a server whose PostgreSQL hangs', () => {
    it('answers unavailable in time, can be stopped, and continues when PostgreSQL does', async () => {
      const cluster = await startPostgres({ durable: false });
      try {
        const store = await createPostgresStore(cluster);
        await using first = await startServer(store.env);
        await using second = await startServer(store.env);
        using one = connect(first);
        using two = connect(second);
        const job = { addonId: 'a', jobType: 't', costUnits: 1 };
        await one.jobs.submitJob(job);
        await two.jobs.submitJob(job);
        const thaw = await freeze(cluster);
        try {
          for (const client of [one, two]) {
            const askedAt = performance.now();
            const [readiness, health] = await Promise.all([
              client.rest('GET', '/readyz'),
              client.rest('GET', '/healthz'),
            ]);
            expect(performance.now() - askedAt, 'ms until it was told').to.be.below(readyzLimitMs);
            expect(readiness.status).to.equal(503);
            expect(readiness.body).to.include({ status: 'unavailable', database: 'down' });
            expect(health.status).to.equal(200);
            expect(health.body).to.include({ status: 'ok', database: 'down' });
          }
          const askedAt = performance.now();
          const metrics = await readMetrics(first.http);
          expect(performance.now() - askedAt, 'ms until the metrics were told').to.be.below(readyzLimitMs);
          expect(metrics.value('leasehold_database_up')).to.equal(0);
          expect(metrics.value('leasehold_queue_ready_jobs')).to.equal(undefined);
          expect(metrics.value('process_resident_memory_bytes')).to.be.above(0);
          const doctorAskedAt = performance.now();
          const doctor = await two.rest('GET', '/api/system/doctor');
          expect(performance.now() - doctorAskedAt, 'ms until the doctor answered').to.be.below(
            doctorLimitMs,
          );
          expect(doctor.body).to.include({ level: 'PROBLEM' });
          expect(JSON.stringify(doctor.body)).to.include('nothing came within 3 s');
          // Calls in flight must not delay the stop.
          const inFlight = Promise.allSettled([
            one.jobs.submitJob(job),
            one.jobs.claimJobs({ workerId: 'w' }),
            one.rest('POST', '/api/scheduler/jobs/submit', { addon_id: 'a', job_type: 't', cost_units: 1 }),
          ]);
          const stoppedAt = performance.now();
          first.signal('SIGTERM');
          const { signal } = await first.exited(stopLimitMs + 5_000);
          expect(performance.now() - stoppedAt, 'ms until it had ended').to.be.below(stopLimitMs);
          expect(signal, 'it has ended by itself').to.equal(null);
          for (const { status } of await inFlight) expect(status).to.be.oneOf(['rejected', 'fulfilled']);
        } finally {
          thaw();
        }
        await until('the other server to be ready', async () => {
          return (await two.rest('GET', '/readyz')).status === 200;
        });
        const { job: made } = await two.jobs.submitJob({ ...job, addonId: 'afterwards' });
        const { jobs } = await two.jobs.claimJobs({ workerId: 'w', addonId: 'afterwards' });
        expect(jobs.map(({ jobId }) => jobId)).to.deep.equal([made?.jobId]);
        const { code } = await second.stop();
        expect(code).to.equal(0);
      } finally {
        await cluster.stop();
      }
    }).timeout(60_000);

    it('stops in time if PostgreSQL hangs and no call has noticed it yet', async () => {
      const cluster = await startPostgres({ durable: false });
      try {
        const store = await createPostgresStore(cluster);
        await using server = await startServer(store.env);
        const thaw = await freeze(cluster);
        try {
          const stoppedAt = performance.now();
          server.signal('SIGTERM');
          const { signal } = await server.exited(stopLimitMs + 5_000);
          expect(performance.now() - stoppedAt, 'ms until it had ended').to.be.below(stopLimitMs);
          expect(signal, 'it has ended by itself').to.equal(null);
        } finally {
          thaw();
        }
      } finally {
        await cluster.stop();
      }
    }).timeout(40_000);
  });

  describe('servers whose PostgreSQL carries foreign notifications', () => {
    const channels = ['leasehold', 'leasehold_v1'];
    const messages = [
      'hello',
      '',
      'null',
      '5',
      '"text"',
      '[]',
      '{}',
      '{"jobs":5}',
      '{"from":5,"jobs":["x"]}',
      '{"from":"x"}',
      '{"from":"x","jobs":5}',
      '{"from":"x","jobs":[null,5,{},"x"]}',
      '{"from":"x","jobs":null,"waiting":{}}',
      '{"from":"x","waiting":"y"}',
      '{"from":"x","waiting":-1}',
      '{"__proto__":{"from":"x"},"constructor":1}',
      '{'.repeat(7_900),
      'é😀'.repeat(1_000),
    ];

    it('ignores foreign notifications, and still notifies other servers of changes', async () => {
      await using store = await createPostgresStore();
      await using first = await startServer(store.env);
      await using second = await startServer(store.env);
      using one = connect(first);
      using two = connect(second);
      await using stranger = await openSession(store.url);
      const listeners = () =>
        store.query(`select count(*) from pg_stat_activity where application_name = 'leasehold listener'
          and datname = current_database() and query ~* '^(listen|select pg_notify|select 1)' and state = 'idle'`);
      await until('two listeners', async () => (await listeners()) === '2');
      for (const channel of channels) {
        for (const message of messages) await stranger.query('select pg_notify($1, $2)', [channel, message]);
      }
      // PostgreSQL delivers notifications in order: a listener that receives this one has received the
      // others.
      for (const [here, there] of [
        [one, two],
        [two, one],
      ] as const) {
        const { job } = await here.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
        const jobId = job?.jobId ?? '';
        const following = here.jobs.watchJob({ jobId })[Symbol.asyncIterator]();
        await following.next();
        await there.jobs.cancelJob({ jobId });
        const { value } = await following.next();
        expect(value?.events.map((event: JobEvent) => event.type)).to.deep.equal(['JOB_CANCELED']);
        // If the cancellation falls between two reads, the end arrives in a message of its own.
        let last = await following.next();
        if (!last.done) last = await following.next();
        expect(last.done).to.equal(true);
      }
      for (const server of [first, second]) {
        const exit = await server.stop();
        expect(exit, server.said()).to.include({ code: 0, signal: null });
        expect(server.log().filter(({ level }) => level === 'error')).to.deep.equal([]);
      }
    });
  });
}
