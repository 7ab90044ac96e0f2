/**
 * Streams on Redis under faults. Whatever happens to Redis, to its messages and to the servers, every job
 * ends exactly once. No message is acknowledged before the commit that makes it superfluous.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { RedisClientType } from '@redis/client';
import { expect } from 'chai';
import type { Database } from '../../src/store/database.ts';
import { onEveryEngine, type TestStore } from '../support/engines.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { describeWithRedis, startRedis, type TestRedis } from '../support/redis.ts';
import { connect, createStore, openStore } from '../support/server-clients.ts';
import { checkEnds, Mill } from './stream-mill.ts';

const jobsInAll = 200;
const key = 'leasehold:stream:mill';
const group = 'leasehold';

interface Scene {
  redis: TestRedis;
  client: RedisClientType;
  servers: ServerProcess[];
  /** Starts another server. */
  start(): Promise<ServerProcess>;
  submit(count: number): Promise<string[]>;
  /** Submits more jobs, and waits until they are done. */
  goesOn(): Promise<void>;
}

describeWithRedis('streams on Redis', () => {
  onEveryEngine((engine) => {
    // Only one process may open an embedded database, so the test could not read it during a run.
    if (engine.name === 'embedded') return;

    const environment = (store: TestStore, redis: TestRedis) => ({
      ...store.env,
      REDIS_URL: redis.url,
      LEASEHOLD_LEASE_TTL_S: '1',
      LEASEHOLD_STREAM_MAX_ATTEMPTS: '1000',
      LEASEHOLD_CAPACITY_TOTAL: '1000',
    });

    async function submitTo(server: ServerProcess, count: number): Promise<string[]> {
      using client = connect(server);
      const job = { addonId: 'a', jobType: 't', costUnits: 1, stream: 'mill', retryBackoffS: 0 };
      const { outcomes } = await client.jobs.submitJobs({
        jobs: Array.from({ length: count }, () => job),
      });
      return outcomes.map(({ outcome }) =>
        outcome.case === 'submitted' ? outcome.value.jobId : expect.fail('a job was refused'),
      );
    }

    /** Runs workers, breaks something in the meantime, and checks the final state of all jobs. */
    async function play(breakIt: (scene: Scene) => Promise<void>): Promise<void> {
      await using store = await createStore(engine);
      await using redis = await startRedis();
      const client = await redis.client();
      const servers: ServerProcess[] = [];
      const start = async () => {
        const server = await startServer(environment(store, redis));
        servers.push(server);
        return server;
      };
      await start();
      await start();
      const jobIds: string[] = [];
      const submit = async (count: number) => {
        const submitted = await submitTo(servers.at(-1) as ServerProcess, count);
        jobIds.push(...submitted);
        return submitted;
      };
      const alive = () => servers.filter(({ isOver }) => !isOver);
      const mill = new Mill({ stream: 'mill', workers: 12, servers: alive, stallMs: 1_600 });
      const ends = jobsInAll;
      /** The earlier jobs may all be done by now, so only new jobs prove that the servers still work. */
      const goesOn = async () => {
        const jobs = await submit(20);
        await until('work goes on', () => jobs.every((jobId) => mill.completed.has(jobId)), 30_000);
      };
      try {
        await submit(ends / 2);
        await until('some work is done', () => mill.completed.size > 20, 30_000);
        await breakIt({ redis, client, servers, start, submit, goesOn });
        await submit(ends / 2);
        await until('all work is done', () => mill.completed.size === jobIds.length, 60_000);
        // Workers that slept have not yet received the refusal of their completion.
        await delay(1_700);
      } finally {
        await mill.stop();
      }
      await using database = await openStore(store);
      await checkEnds(database, jobIds, mill);
      expect(mill.stale, 'attempts that came too late').to.be.above(0);
      await until('Redis comes to hold nothing more', async () => (await client.xLen(key)) === 0, 30_000);
      await Promise.all(alive().map((server) => server.stop()));
    }

    it('completes every job of a stream over a Redis that is killed and comes back empty', () =>
      play(async ({ redis, servers, goesOn }) => {
        await redis.kill();
        await goesOn();
        using rest = connect(servers[0] as ServerProcess);
        await until('it is told of', async () => (await rest.rest('GET', '/readyz')).body.redis === 'down');
        expect((await rest.rest('GET', '/readyz')).status).to.equal(200);
        const metrics = await (await fetch(`${servers[0]?.http}/metrics`)).text();
        expect(metrics).to.match(/^leasehold_redis_up 0$/m);
        await redis.restart();
        await until('it is back', async () => (await rest.rest('GET', '/readyz')).body.redis === 'up');
      })).timeout(120_000);

    it('completes every job of a stream over a FLUSHALL', () =>
      play(async ({ client, goesOn }) => {
        for (let i = 0; i < 3; i++) {
          await client.flushAll();
          await goesOn();
        }
      })).timeout(120_000);

    it('completes every job of a stream with duplicate, unordered and invalid messages', () =>
      play(async ({ client, goesOn, submit }) => {
        await submit(60);
        for (let i = 0; i < 20; i++) {
          const entries = await rangeOf(client, 50);
          for (const { message } of entries.reverse()) await client.xAdd(key, '*', message);
          await client.xAdd(key, '*', { job_id: 'no uuid', enqueue_id: '' });
          await client.xAdd(key, '*', { something: 'else' });
        }
        await goesOn();
      })).timeout(120_000);

    it('completes every job of a stream although servers are killed', () =>
      play(async ({ servers, start, goesOn }) => {
        for (let i = 0; i < 2; i++) {
          await servers[i]?.kill();
          await start();
          await goesOn();
        }
      })).timeout(120_000);

    it('completes every job although a server is killed between its commits and its messages', async () => {
      await using store = await createStore(engine);
      await using redis = await startRedis();
      const client = await redis.client();
      const first = await startServer(environment(store, redis));
      using rest = connect(first);
      await until('Redis is up', async () => (await rest.rest('GET', '/readyz')).body.redis === 'up');
      // A hung Redis would apply earlier writes once it continues; a Redis that is gone cannot.
      await redis.kill();
      const jobIds = await submitTo(first, 40);
      await first.kill();
      await redis.restart();
      expect(await client.xLen(key)).to.equal(0);
      await using second = await startServer(environment(store, redis));
      await until('all messages are there', async () => (await client.xLen(key)) >= 40);
      const entries = await rangeOf(client);
      expect([...new Set(entries.map(({ message }) => message.job_id))]).to.have.members(jobIds);
      const mill = new Mill({ stream: 'mill', workers: 8, servers: () => [second], stallMs: 1_600 });
      await until('all work is done', () => mill.completed.size === jobIds.length, 60_000).finally(() =>
        mill.stop(),
      );
      await using database = await openStore(store);
      await checkEnds(database, jobIds, mill);
    }).timeout(90_000);

    it('acknowledges no message before its commit', async () => {
      await using store = await createStore(engine);
      await using redis = await startRedis();
      const client = await redis.client();
      await using database = await openStore(store);
      await slowDownEnds(database);
      await using server = await startServer(environment(store, redis));
      const jobIds = await submitTo(server, 20);
      await until('all messages are read', async () => {
        const pending = await client.xPending(key, group).catch(() => ({ pending: 0 }));
        return pending.pending === jobIds.length;
      });
      const jobOf = new Map((await rangeOf(client)).map(({ id, message }) => [id, message.job_id as string]));
      const acknowledged = new Map<string, number>();
      const monitor = await redis.client();
      await monitor.monitor((line) => {
        const [, seconds, text] = /^(\d+\.\d+) \[[^\]]*\] (.*)$/.exec(String(line)) ?? [];
        if (!text?.startsWith('"XACK"') && !text?.startsWith('"XDEL"')) return;
        for (const [, id] of text.matchAll(/"(\d+-\d+)"/g)) {
          const jobId = jobOf.get(id as string);
          if (jobId !== undefined && !acknowledged.has(jobId))
            acknowledged.set(jobId, Number(seconds) * 1000);
        }
      });
      const mill = new Mill({ stream: 'mill', workers: 4, servers: () => [server], stallMs: 0 });
      await until('all work is done', () => mill.completed.size === jobIds.length, 60_000).finally(() =>
        mill.stop(),
      );
      await until('all is acknowledged', () => acknowledged.size === jobIds.length);
      const commits = await database.query<{ job_id: string; at: number }>(
        'select job_id, extract(epoch from min(at))::float8 * 1000 as at from commit_times group by job_id',
        [],
      );
      expect(commits.map(({ job_id }) => job_id)).to.have.members(jobIds);
      for (const { job_id, at } of commits) {
        expect(
          (acknowledged.get(job_id) ?? 0) - at,
          `ms from commit to acknowledgement of ${job_id}`,
        ).to.be.above(0);
      }
    }).timeout(90_000);
  });
});

/** The messages in the stream, the oldest first. */
async function rangeOf(client: RedisClientType, limit = 10_000) {
  return (await client.xRange(key, '-', '+', { COUNT: limit })) ?? [];
}

/** Delays every commit that ends an attempt, and records when it was done. */
async function slowDownEnds(database: Database): Promise<void> {
  for (const statement of [
    'create table commit_times (job_id uuid, at timestamptz)',
    `create function be_slow() returns trigger language plpgsql as $$ begin
      perform pg_sleep(0.1);
      insert into commit_times values (new.job_id, clock_timestamp());
      return new;
    end $$`,
    ...['leases', 'job_outcomes'].map(
      (table) => `create constraint trigger be_slow after insert on ${table} deferrable initially deferred
        for each row execute function be_slow()`,
    ),
  ]) {
    await database.query(statement, []);
  }
}
