/**
 * The guarantee: a server outlives its PostgreSQL. During an outage every call fails promptly with the same
 * error. Afterwards the server continues by itself, and every acknowledged write exists.
 */
import { expect } from 'chai';
import { findPostgres, startPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { type Client, codeOf, connect, createPostgresStore, openStore } from '../support/server-clients.ts';
import { Ledger, problemsIn } from './ledger.ts';
import { Load } from './load.ts';

const outages = 2;
const writesBetween = 400;
/** The server reports refused connections at once; this includes a margin for a busy machine. */
const refusalLimitMs = 6_000;
const nobody = '01890000-0000-7000-8000-000000000000';

/** The answer of each protocol without a database. */
async function answersOf({ jobs, rest }: Client): Promise<Record<string, string>> {
  const submission = { addon_id: 'a', job_type: 't', cost_units: 1 };
  const http = async (method: string, path: string, body?: object) => {
    const answer = await rest(method, path, body);
    return `${answer.status} ${answer.body.code ?? answer.body.status}`;
  };
  const rpc = (call: Promise<unknown>) => call.then(() => 'answered', codeOf);
  const calls = {
    'REST submit': http('POST', '/api/scheduler/jobs/submit', submission),
    'REST claim': http('POST', '/api/scheduler/jobs/claim', { worker_id: 'w' }),
    'REST read': http('GET', `/api/scheduler/jobs/${nobody}`),
    'REST list': http('GET', '/api/scheduler/jobs'),
    'REST cancel': http('POST', `/api/scheduler/jobs/${nobody}/cancel`, {}),
    'gRPC submit': rpc(jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 })),
    'gRPC batch': rpc(jobs.submitJobs({ jobs: [{ addonId: 'a', jobType: 't', costUnits: 1 }] })),
    'gRPC claim': rpc(jobs.claimJobs({ workerId: 'w' })),
    'gRPC claim with a request': rpc(jobs.claimJobs({ workerId: 'w', requestId: 'r' })),
    'gRPC read': rpc(jobs.getJob({ jobId: nobody })),
    'gRPC retry': rpc(jobs.retryJob({ jobId: nobody })),
    health: http('GET', '/healthz'),
    readiness: http('GET', '/readyz'),
  };
  const names = Object.keys(calls);
  const answers = await Promise.all(Object.values(calls));
  return Object.fromEntries(names.map((name, i) => [name, answers[i] ?? '']));
}

const unavailable = {
  'REST submit': '503 unavailable',
  'REST claim': '503 unavailable',
  'REST read': '503 unavailable',
  'REST list': '503 unavailable',
  'REST cancel': '503 unavailable',
  'gRPC submit': 'Unavailable',
  'gRPC batch': 'Unavailable',
  'gRPC claim': 'Unavailable',
  'gRPC claim with a request': 'Unavailable',
  'gRPC read': 'Unavailable',
  'gRPC retry': 'Unavailable',
  health: '200 ok',
  readiness: '503 unavailable',
};

const isReady = async ({ rest }: Client) => (await rest('GET', '/readyz')).status === 200;

/** Log messages that report a defect rather than an outage. */
const mistakes = (server: ServerProcess) =>
  server
    .log()
    .filter(({ level }) => level === 'error')
    .map(({ msg, error }) => `${msg}: ${JSON.stringify(error)}`);

if (findPostgres()) {
  describe('a server whose PostgreSQL is killed', () => {
    it('answers unavailable during the outage, recovers alone, and loses no acknowledged write', async () => {
      const cluster = await startPostgres({ durable: true });
      await using store = await createPostgresStore(cluster);
      await using server = await startServer({ ...store.env, LEASEHOLD_CLAIM_TTL_S: '3600' });
      using client = connect(server);
      const ledger = new Ledger();
      await using load = new Load(server, ledger, { endsAtFailure: false });
      const progress = async () => {
        const enough = ledger.acknowledged + writesBetween;
        await until(`${enough} acknowledged writes`, () => ledger.acknowledged >= enough);
      };
      for (let outage = 1; outage <= outages; outage++) {
        await progress();
        await cluster.kill();
        const askedAt = performance.now();
        expect(await answersOf(client)).to.deep.equal(unavailable);
        expect(performance.now() - askedAt, 'ms until every call was refused').to.be.below(refusalLimitMs);
        await cluster.restart();
        await until('the server to be ready again', () => isReady(client));
      }
      await progress();
      await load.stop();
      expect(mistakes(server).slice(0, 3)).to.deep.equal([]);
      // One outage is one line at its beginning and one at its end, whatever calls and services it affects.
      const told = server.log().filter(({ level }) => level === 'warn');
      expect(told.filter(({ msg }) => msg === 'the database does not answer')).to.have.length(outages);
      for (const { error } of told) expect(error).to.equal(undefined);
      const codes = [...new Set(load.failures.map(({ code }) => code))].sort();
      expect(codes).to.have.members(['HTTP 503', 'Unavailable']);
      expect(
        Math.max(...load.failures.map(({ ms }) => ms)),
        'ms of the longest call that failed',
      ).to.be.below(refusalLimitMs);
      expect((await server.stop()).code).to.equal(0);
      await using database = await openStore(store);
      expect((await problemsIn(database, ledger)).slice(0, 10)).to.deep.equal([]);
    }).timeout(60_000);

    it('continues with new connections after all of its own were terminated', async () => {
      await using store = await createPostgresStore();
      await using server = await startServer({ ...store.env, LEASEHOLD_CLAIM_TTL_S: '3600' });
      const ledger = new Ledger();
      await using load = new Load(server, ledger, { endsAtFailure: false });
      for (let outage = 1; outage <= outages; outage++) {
        const enough = ledger.acknowledged + writesBetween;
        await until(`${enough} acknowledged writes`, () => ledger.acknowledged >= enough);
        await store.query(`select pg_terminate_backend(pid) from pg_stat_activity
          where application_name like 'leasehold%' and datname = current_database()`);
      }
      const enough = ledger.acknowledged + writesBetween;
      await until(`${enough} acknowledged writes`, () => ledger.acknowledged >= enough);
      await load.stop();
      expect(mistakes(server).slice(0, 3)).to.deep.equal([]);
      for (const { code } of load.failures) expect(code).to.be.oneOf(['HTTP 503', 'Unavailable']);
      expect((await server.stop()).code).to.equal(0);
      await using database = await openStore(store);
      expect((await problemsIn(database, ledger)).slice(0, 10)).to.deep.equal([]);
    }).timeout(60_000);

    it('stops during the outage without delay', async () => {
      const cluster = await startPostgres({ durable: false });
      const store = await createPostgresStore(cluster);
      await using server = await startServer(store.env);
      await cluster.kill();
      const exit = await server.stop();
      expect(exit).to.include({ code: 0, signal: null });
      await cluster.stop();
    });

    it('notifies other servers of changes again after the outage', async () => {
      const cluster = await startPostgres({ durable: false });
      const store = await createPostgresStore(cluster);
      await using server = await startServer(store.env);
      const listeners = () =>
        store.query(`select count(*) from pg_stat_activity where application_name = 'leasehold listener'`);
      await until('a listener', async () => (await listeners()) === '1');
      await cluster.restart();
      await until('a listener after the outage', async () => (await listeners()) === '1');
      expect((await server.stop()).code).to.equal(0);
      await cluster.stop();
    });
  });
}
