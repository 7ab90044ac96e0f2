/**
 * The guarantee: a connection that dies silently, without FIN or RST, is detected within 5 s and replaced. A
 * connection that is only slow is left alone.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { PostgresChannel } from '../../src/store/connection/notify-channel.ts';
import { silentLog } from '../support/jobs.ts';
import { findPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { PostgresProxy } from '../support/proxy.ts';
import {
  codeOf,
  connect,
  createPostgresStore,
  openSession,
  openStore,
  type PostgresStore,
} from '../support/server-clients.ts';

const job = { addonId: 'a', jobType: 't', costUnits: 1 };
/** The guaranteed time, and a margin for a busy machine. */
const detectionMs = 5_000 + 1_000;

if (findPostgres()) {
  describe('PostgreSQL connections that die silently', () => {
    let store: PostgresStore;
    let proxy: PostgresProxy;
    let server: ServerProcess;
    beforeEach(async () => {
      store = await createPostgresStore();
      proxy = await PostgresProxy.start(store.cluster.port);
      server = await startServer({ DATABASE_URL: proxy.url(store.url), LEASEHOLD_CAPACITY_TOTAL: '1000' });
    });
    afterEach(async () => {
      await server.kill();
      await proxy.stop();
      await store.remove();
    });

    it('replaces dead connections within 5 s under load; calls succeed or are unavailable (V3)', async () => {
      using client = connect(server);
      const { job: known } = await client.jobs.submitJob(job);
      const calls: Record<string, () => Promise<unknown>> = {
        submit: () => client.jobs.submitJob(job),
        read: () => client.jobs.getJob({ jobId: known?.jobId ?? '' }),
        claim: () => client.jobs.claimJobs({ workerId: 'w' }),
      };
      let isOver = false;
      const done: { kind: string; at: number }[] = [];
      const failed: { kind: string; code: string }[] = [];
      const loops = Object.entries(calls).flatMap(([kind, call]) =>
        Array.from({ length: 3 }, async () => {
          while (!isOver) {
            await call().then(
              () => done.push({ kind, at: performance.now() }),
              (error: unknown) => failed.push({ kind, code: codeOf(error) }),
            );
          }
        }),
      );
      await until('load', () => done.length > 300);
      const diedAt = performance.now();
      expect(proxy.blackhole('leasehold')).to.be.above(0);
      await delay(50);
      const lastBefore = performance.now();
      for (const kind of Object.keys(calls)) {
        await until(`a ${kind}`, () => done.some((one) => one.kind === kind && one.at > lastBefore), 20_000);
        const first = done.find((one) => one.kind === kind && one.at > lastBefore);
        expect((first?.at ?? 0) - diedAt, `ms until a ${kind} succeeded`).to.be.below(detectionMs);
      }
      isOver = true;
      await Promise.all(loops);
      expect(failed.filter(({ kind }) => kind === 'read')).to.deep.equal([]);
      expect(failed.filter(({ code }) => code !== 'Unavailable')).to.deep.equal([]);
      expect((await client.rest('GET', '/readyz')).status).to.equal(200);
    }).timeout(60_000);

    it('replaces connections within 5 s that died while idle (V3)', async () => {
      using client = connect(server);
      await Promise.all(Array.from({ length: 8 }, () => client.jobs.claimJobs({ workerId: 'w' })));
      proxy.blackhole('leasehold');
      const diedAt = performance.now();
      const { job: known } = await client.jobs.submitJob(job).catch(() => client.jobs.submitJob(job));
      await client.jobs.getJob({ jobId: known?.jobId ?? '' });
      expect(performance.now() - diedAt).to.be.below(detectionMs);
    }).timeout(30_000);

    it('keeps a connection that waits for a lock or runs a long statement (V3)', async () => {
      await using database = await openStore({
        ...store,
        options: { ...store.options, url: proxy.url(store.url) },
      });
      await using session = await openSession(store.url);
      await session.query('begin');
      await session.query('lock table jobs in access exclusive mode');
      using client = connect(server);
      const submitting = client.jobs.submitJob(job);
      const sleeping = database.query('select pg_sleep(6)', []);
      const inTransaction = database.transaction(async (sql) => {
        await sql.query('select 1', []);
        await delay(6_000);
        return sql.query('select 2 as n', []);
      });
      await delay(6_500);
      await session.query('rollback');
      expect((await submitting).job?.state).to.not.equal(undefined);
      await sleeping;
      expect(await inTransaction).to.deep.equal([{ n: 2 }]);
    }).timeout(30_000);

    it("cancels a statement on time although the canceller's connection is dead (V3)", async () => {
      await using session = await openSession(store.url);
      await session.query('begin');
      await session.query('lock table jobs in access exclusive mode');
      using client = connect(server);
      let isSilent = false;
      void proxy.breakNext('leasehold canceller', 'ready', (link) => {
        link.isSilent = true;
        isSilent = true;
      });
      await until('a canceller', async () => {
        await client.jobs.submitJob(job, { timeoutMs: 400 }).catch(() => {});
        return isSilent;
      });
      await session.query('rollback');
      const begunAt = performance.now();
      await client.jobs.submitJob(job);
      expect(performance.now() - begunAt).to.be.below(detectionMs);
    }).timeout(30_000);

    it('stops in time with dead connections (V3)', async () => {
      using client = connect(server);
      await client.jobs.submitJob(job);
      proxy.blackhole();
      const exit = await server.stop();
      expect(exit, server.said()).to.include({ code: 0, signal: null });
    }).timeout(30_000);

    it('replaces a dead listener, and carries notifications in both directions again (V4)', async () => {
      const heard = { direct: [] as string[], proxied: [] as string[] };
      const direct = new PostgresChannel(store.url, silentLog);
      const proxied = new PostgresChannel(proxy.url(store.url), silentLog);
      let openings = 0;
      try {
        direct.start((message) => heard.direct.push(message));
        proxied.start(
          (message) => heard.proxied.push(message),
          () => openings++,
        );
        await until('both to listen', async () => {
          direct.send('hello');
          proxied.send('hello');
          return heard.direct.length > 1 && heard.proxied.length > 1;
        });
        proxy.blackhole('leasehold listener');
        const diedAt = performance.now();
        proxied.send('sent while it was dead');
        await until('the message that was sent while it was dead', () =>
          heard.direct.includes('sent while it was dead'),
        );
        direct.send('to the new connection');
        await until('a message to the new connection', () => heard.proxied.includes('to the new connection'));
        expect(performance.now() - diedAt).to.be.below(detectionMs);
        expect(openings).to.equal(2);
      } finally {
        await Promise.all([direct.stop(), proxied.stop()]);
      }
    }).timeout(30_000);
  });
}
