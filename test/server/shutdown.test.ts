/**
 * The guarantee: SIGTERM stops a server in an orderly way. The server accepts no new call, and answers calls
 * in progress for up to five seconds. It ends watch streams, closes its connections, releases its directory,
 * and exits with 0.
 */

import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import * as grpc from '@grpc/grpc-js';
import { expect } from 'chai';
import { JobState } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { findPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import {
  type Client,
  codeOf,
  connect,
  createPostgresStore,
  createStore,
  emptyDirectory,
  openSession,
} from '../support/server-clients.ts';

/** Without calls in progress there is no wait; the rest is a margin for a busy machine. */
const promptMs = 2_500;
const patienceMs = 5_000;

async function submitAndClaim({ jobs }: Client, count: number): Promise<string[]> {
  const job = { addonId: 'a', jobType: 't', costUnits: 1 };
  await jobs.submitJobs({ jobs: Array.from({ length: count }, () => job) });
  const claimed = await jobs.claimJobs({ workerId: 'w', limit: count });
  return claimed.jobs.map(({ jobId }) => jobId);
}

/** Sends SIGTERM, and returns how the process ended and how long that took. */
async function timedStop(server: ServerProcess) {
  const startedAt = performance.now();
  server.signal('SIGTERM');
  const { code, stderr } = await server.exited(3 * patienceMs);
  return { code, stderr, ms: performance.now() - startedAt };
}

async function openSocket(address: string): Promise<Socket> {
  const { hostname, port } = new URL(address);
  const socket = connectSocket(Number(port), hostname);
  await once(socket, 'connect');
  return socket;
}

const isRefused = (address: string) =>
  openSocket(address).then(
    (socket) => {
      socket.destroy();
      return false;
    },
    () => true,
  );

/** A connected gRPC channel without calls, of another library than the clients elsewhere. */
async function openIdleChannel(address: string): Promise<grpc.Client> {
  const channel = new grpc.Client(address, grpc.credentials.createInsecure());
  await new Promise<void>((resolve, reject) =>
    channel.waitForReady(Date.now() + 5_000, (error) => (error ? reject(error) : resolve())),
  );
  return channel;
}

describe('a server that gets SIGTERM', () => {
  onEveryEngine((engine) => {
    it('exits with 0, and a second server starts on the same data at once', async () => {
      await using store = await createStore(engine);
      await using first = await startServer(store.env);
      using client = connect(first);
      const [jobId = ''] = await submitAndClaim(client, 1);
      const { code, ms, stderr } = await timedStop(first);
      expect({ code, isPrompt: ms < promptMs }, `${ms} ms; ${stderr}`).to.deep.equal({
        code: 0,
        isPrompt: true,
      });
      await using second = await startServer(store.env);
      using other = connect(second);
      expect((await other.jobs.getJob({ jobId })).job?.claimedBy).to.equal('w');
    });

    it('ends watch streams, and reports the reason', async () => {
      await using store = await createStore(engine);
      await using server = await startServer(store.env);
      using client = connect(server);
      const [jobId = ''] = await submitAndClaim(client, 1);
      const watching = client.jobs.watchJob({ jobId }, { timeoutMs: 60_000 })[Symbol.asyncIterator]();
      expect((await watching.next()).value?.job?.state).to.equal(JobState.CLAIMED);
      const over = watching.next().then(() => 'a message', codeOf);
      const { code, ms } = await timedStop(server);
      expect(await over).to.equal('Unavailable');
      expect({ code, isPrompt: ms < promptMs }, `${ms} ms`).to.deep.equal({ code: 0, isPrompt: true });
    });
  });

  it('does not wait for idle connections', async () => {
    await using server = await startServer(await emptyDirectory());
    const channel = await openIdleChannel(server.grpc);
    using client = connect(server);
    await client.rest('GET', '/api/scheduler/jobs');
    await client.jobs.listJobs({});
    try {
      const { code, ms } = await timedStop(server);
      expect(code).to.equal(0);
      expect(ms, 'ms until it ended').to.be.below(promptMs);
    } finally {
      channel.close();
    }
  });

  it('exits in time although a client connects, sends nothing and reads nothing', async () => {
    await using server = await startServer(await emptyDirectory());
    const silent = [await openSocket(server.http), await openSocket(`http://${server.grpc}`)];
    try {
      const { code, ms } = await timedStop(server);
      expect(code).to.equal(0);
      expect(ms, 'ms until it ended').to.be.below(patienceMs + promptMs);
    } finally {
      for (const socket of silent) socket.destroy();
    }
  });
});

/** A server with two claimed jobs, both locked by the test, and a call on each that waits for the lock. */
async function blockCalls(server: ServerProcess, client: Client, url: string) {
  const jobIds = await submitAndClaim(client, 2);
  const session = await openSession(url);
  await session.query('begin');
  await session.query('select 1 from live_jobs where job_id = any ($1) for update', [jobIds]);
  const [first = '', second = ''] = jobIds;
  const word = { state: 'PREPARING', worker_id: 'w' };
  const overRest = client.rest('POST', `/api/scheduler/jobs/${first}/status`, word).then(
    ({ status }) => status,
    () => 'broken off',
  );
  const overGrpc = client.jobs
    .updateJobStatus({ jobId: second, state: JobState.PREPARING, workerId: 'w' })
    .then(({ job }) => job?.state, codeOf);
  const waiting = `select count(*) from pg_stat_activity
    where application_name = 'leasehold' and wait_event_type = 'Lock' and datname = current_database()`;
  await until(
    'a call to wait for the lock',
    async () => (await session.query(waiting)).rows[0].count !== '0',
  );
  return { server, session, overRest, overGrpc, first };
}

const connectionsOf = async (store: { name: string; query(sql: string): Promise<string> }) =>
  store.query(`select string_agg(application_name, ', ') from pg_stat_activity
    where datname = '${store.name}' and application_name like 'leasehold%'`);

if (findPostgres()) {
  describe('a server on PostgreSQL that gets SIGTERM', () => {
    it('accepts no new call, and answers the calls in progress', async () => {
      await using store = await createPostgresStore();
      await using server = await startServer(store.env);
      using client = connect(server);
      const { session, overRest, overGrpc } = await blockCalls(server, client, store.url);
      await using _ = session;
      server.signal('SIGTERM');
      await until('new connections to be refused', async () => {
        const refused = await Promise.all([isRefused(server.http), isRefused(`http://${server.grpc}`)]);
        return refused.every((each) => each);
      });
      await delay(1_000);
      expect(server.isOver, 'it ended before it had answered').to.equal(false);
      const releasedAt = performance.now();
      await session.query('commit');
      expect(await Promise.all([overRest, overGrpc])).to.deep.equal([200, JobState.PREPARING]);
      expect((await server.exited()).code).to.equal(0);
      expect(performance.now() - releasedAt, 'ms from the last answer to the end').to.be.below(promptMs);
    });

    it('ends calls that take longer than five seconds, and rolls them back', async () => {
      await using store = await createPostgresStore();
      await using server = await startServer(store.env);
      using client = connect(server);
      const { session, overRest, overGrpc, first } = await blockCalls(server, client, store.url);
      await using _ = session;
      const { code, ms } = await timedStop(server);
      expect(code).to.equal(0);
      expect(ms, 'ms until it ended').to.be.within(patienceMs - 500, patienceMs + promptMs);
      expect(await overRest).to.be.oneOf(['broken off', 503]);
      expect(await overGrpc).to.be.oneOf(['Unavailable', 'Canceled', 'Internal']);
      await session.query('commit');
      await until('its connections to be gone', async () => (await connectionsOf(store)) === '');
      const { rows } = await session.query('select note from live_jobs where job_id = $1', [first]);
      expect(rows).to.deep.equal([{ note: null }]);
      expect(await store.query('select count(*) from job_events where type = 2')).to.equal('0');
    });

    it('closes its connections to the database', async () => {
      await using store = await createPostgresStore();
      await using server = await startServer(store.env);
      using client = connect(server);
      await Promise.all(Array.from({ length: 8 }, () => submitAndClaim(client, 3)));
      await until('its connections', async () => (await connectionsOf(store)).includes('leasehold listener'));
      expect((await server.stop()).code).to.equal(0);
      await until('its connections to be gone', async () => (await connectionsOf(store)) === '', 5_000);
    });

    it('exits at once at a second signal', async () => {
      await using store = await createPostgresStore();
      await using server = await startServer(store.env);
      using client = connect(server);
      const { session, overRest, overGrpc } = await blockCalls(server, client, store.url);
      await using _ = session;
      server.signal('SIGTERM');
      await until('new connections to be refused', () => isRefused(server.http));
      // Signals in immediate succession may merge into one, so the test repeats them until the process ends.
      const asking = setInterval(() => server.signal('SIGTERM'), 100);
      const { signal } = await server.exited(promptMs).finally(() => clearInterval(asking));
      expect(signal).to.equal('SIGTERM');
      client.close();
      expect(await overRest).to.equal('broken off');
      expect(await overGrpc).to.not.equal(JobState.PREPARING);
    });
  });
}
