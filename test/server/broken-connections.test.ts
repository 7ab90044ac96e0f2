/**
 * The guarantee: no broken connection to PostgreSQL stops the server, however the connection ends and
 * whatever it was doing.
 */
import { expect } from 'chai';
import { findPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { type Link, PostgresProxy, type Stage, type Way } from '../support/proxy.ts';
import { connect, createPostgresStore, openSession, type PostgresStore } from '../support/server-clients.ts';

const job = { addonId: 'a', jobType: 't', costUnits: 1 };
const stages: readonly Stage[] = ['connecting', 'login', 'ready', 'statement', 'closing'];
const waysAt = (stage: Stage): Way[] =>
  stage === 'connecting' || stage === 'login' ? ['RST', 'FIN'] : ['RST', 'FIN', 'terminate'];

/** Breaks a connection in the given way. */
const breaker = (store: PostgresStore, way: Way) => async (link: Link) => {
  if (way !== 'terminate') link.end(way);
  else await store.query(`select pg_terminate_backend(${link.backendPid})`);
};

async function serves(server: ServerProcess): Promise<void> {
  using client = connect(server);
  await until('the server to serve', async () => {
    if (server.isOver) throw new Error(`the server has ended:\n${server.said()}`);
    return client.jobs.submitJob(job).then(
      () => true,
      () => false,
    );
  });
  expect((await client.rest('GET', '/readyz')).status).to.equal(200);
}

if (findPostgres()) {
  describe('a server whose connections to PostgreSQL are broken', () => {
    let store: PostgresStore;
    let proxy: PostgresProxy;
    let env: Record<string, string>;
    let server: ServerProcess;
    before(async () => {
      store = await createPostgresStore();
      proxy = await PostgresProxy.start(store.cluster.port);
      env = { DATABASE_URL: proxy.url(store.url) };
      server = await startServer(env);
    });
    beforeEach(async () => {
      if (server.isOver) server = await startServer(env);
      await serves(server);
      await until('a listener', () => proxy.links('leasehold listener').some(({ isReady }) => isReady));
    });
    after(async () => {
      await server.kill();
      await proxy.stop();
      await store.remove();
    });

    /** Blocks every submission while `work` runs. */
    const whileHeld = async (work: () => Promise<void>) => {
      await using session = await openSession(store.url);
      await session.query('begin');
      await session.query('lock table jobs in access exclusive mode');
      await work();
      await session.query('rollback');
    };
    const giveUp = async (server: ServerProcess) => {
      using client = connect(server);
      await client.jobs.submitJob(job, { timeoutMs: 400 }).catch(() => {});
    };
    const dropIdle = () =>
      store.query(`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'leasehold' and datname = current_database()`);

    describe('a broken connection of the canceller (V1)', () => {
      for (const stage of stages) {
        for (const way of waysAt(stage)) {
          it(`keeps serving when ${way} ends the canceller at the stage '${stage}'`, async () => {
            await whileHeld(async () => {
              let isBroken = false;
              void proxy.breakNext('leasehold canceller', stage, breaker(store, way)).then(() => {
                isBroken = true;
              });
              await until('the canceller to be broken', async () => {
                await giveUp(server);
                return isBroken;
              });
            });
            await serves(server);
          });
        }
      }
    });

    describe('a broken connection of the pool (V1)', () => {
      for (const stage of [...stages, 'transaction'] as const) {
        for (const way of stage === 'closing' ? [] : waysAt(stage)) {
          it(`keeps serving when ${way} ends a pool connection at the stage '${stage}'`, async () => {
            let isBroken = false;
            const broken = proxy.breakNext('leasehold', stage, breaker(store, way)).then(() => {
              isBroken = true;
            });
            await dropIdle();
            using client = connect(server);
            const claiming = until('the connection to be broken', async () => {
              // A claim with a request_id is a transaction of several statements.
              await client.jobs.claimJobs({ workerId: 'w', requestId: `${Math.random()}` }).catch(() => {});
              return isBroken;
            });
            await Promise.all([broken, claiming]);
            await serves(server);
          });
        }
      }
    });

    describe('a broken connection of the listener (V1)', () => {
      for (const stage of stages) {
        for (const way of stage === 'closing' ? [] : waysAt(stage)) {
          it(`keeps serving when ${way} ends the listener at the stage '${stage}'`, async () => {
            const broken = proxy.breakNext('leasehold listener', stage, breaker(store, way));
            if (stage !== 'statement') for (const link of proxy.links('leasehold listener')) link.end('RST');
            await broken;
            await serves(server);
            await until('the next listener', () =>
              proxy.links('leasehold listener').some(({ isReady }) => isReady),
            );
          });
        }
      }
    });

    describe("a connection that breaks at the server's stop (V1)", () => {
      for (const name of ['leasehold', 'leasehold listener']) {
        for (const way of waysAt('closing')) {
          it(`exits with 0 when a connection of '${name}' is ended by ${way} while it closes`, async () => {
            const broken = proxy.breakNext(name, 'closing', breaker(store, way));
            const exit = await server.stop();
            await broken;
            expect(exit, server.said()).to.include({ code: 0, signal: null });
          });
        }
      }
    });

    it('keeps serving when idle connections of all kinds are reset (V1)', async () => {
      for (const name of ['leasehold', 'leasehold listener'])
        for (const link of proxy.links(name)) link.end('RST');
      await serves(server);
    });
  });
}
