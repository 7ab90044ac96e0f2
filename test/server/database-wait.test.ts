/**
 * The guarantee: a server waits for a PostgreSQL that is not available yet, and logs an outage as one event.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { findPostgres, startPostgres, type TestCluster } from '../support/postgres.ts';
import { startProcess, startServer, until } from '../support/process.ts';
import { codeOf, connect, createPostgresStore, type PostgresStore } from '../support/server-clients.ts';

const anywhere = { LEASEHOLD_HTTP_ADDR: '127.0.0.1:0', LEASEHOLD_GRPC_ADDR: '127.0.0.1:0' };
const waitingLine = 'waiting for the database';

if (findPostgres()) {
  describe('a server without its PostgreSQL', () => {
    let cluster: TestCluster;
    let store: PostgresStore;
    before(async () => {
      cluster = await startPostgres({ durable: false });
      store = await createPostgresStore(cluster);
    });
    after(() => cluster.stop());

    const start = (env: Record<string, string> = {}) =>
      startProcess(['serve'], { ...anywhere, ...store.env, ...env });
    const waitingLines = (server: { stderr: string[] }) =>
      server.stderr.filter((line) => line.includes(waitingLine));

    it('waits for PostgreSQL at its start with one log line, and then serves (item 5)', async () => {
      await cluster.kill();
      await using server = await start();
      await until('the line', () => waitingLines(server).length > 0);
      await delay(1_500);
      await cluster.restart();
      await until('a ready line', () => server.stdout.length > 0, 25_000);
      expect(waitingLines(server)).to.have.length(1);
      expect((await server.stop()).code).to.equal(0);
    }).timeout(60_000);

    it('exits with 1 if PostgreSQL is not available within LEASEHOLD_DATABASE_WAIT_S (item 5)', async () => {
      await cluster.kill();
      try {
        const begunAt = performance.now();
        const server = await start({ LEASEHOLD_DATABASE_WAIT_S: '2' });
        const { code, stderr } = await server.exited();
        expect(performance.now() - begunAt).to.be.above(2_000);
        expect(code).to.equal(1);
        expect(waitingLines(server)).to.have.length(1);
        expect(stderr).to.include('DATABASE_URL');
      } finally {
        await cluster.restart();
      }
    }).timeout(60_000);

    it('stops waiting for PostgreSQL on a signal (item 5)', async () => {
      await cluster.kill();
      try {
        const server = await start();
        await until('the line', () => waitingLines(server).length > 0);
        const stoppedAt = performance.now();
        expect((await server.stop()).code).to.equal(0);
        expect(performance.now() - stoppedAt).to.be.below(3_000);
      } finally {
        await cluster.restart();
      }
    }).timeout(60_000);

    it('does not wait if the database or role does not exist (item 5)', async () => {
      const server = await start({ DATABASE_URL: store.url.replace('postgres@', 'nobody_here@') });
      const { code } = await server.exited(15_000);
      expect(code).to.equal(1);
      expect(waitingLines(server)).to.deep.equal([]);
    }).timeout(30_000);

    it('logs an outage at its start, every 30 s and at its end (item 5, A5)', async () => {
      await using server = await startServer({ ...store.env, LEASEHOLD_CLAIM_TTL_S: '600' });
      using client = connect(server);
      await client.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
      await client.jobs.claimJobs({ workerId: 'w' });
      const before = server.log().length;
      await cluster.kill();
      const begunAt = performance.now();
      while (performance.now() - begunAt < 33_000) {
        const failed = await client.jobs.claimJobs({ workerId: 'w' }).then(() => 'answered', codeOf);
        expect(failed).to.equal('Unavailable');
        await delay(200);
      }
      await cluster.restart();
      await until('the line at the end', () =>
        server.log().some(({ msg }) => msg === 'the database answers again'),
      );
      await until('the pulse', () => server.log().some(({ msg }) => /for a while$/.test(`${msg}`)));
      const lines = server.log().slice(before);
      const ofOutage = lines.filter(({ msg }) => `${msg}`.startsWith('the database '));
      expect(ofOutage.map(({ level, msg }) => `${level} ${msg}`)).to.deep.equal([
        'warn the database does not answer',
        'warn the database still does not answer',
        'info the database answers again',
      ]);
      expect(ofOutage[0]?.reason).to.include('ECONNREFUSED');
      expect(ofOutage[2]?.outageMs).to.be.within(32_000, 60_000);
      expect(ofOutage[2]?.failures).to.be.above(50);
      const others = lines.filter((line) => !ofOutage.includes(line)).map(({ msg }) => msg);
      expect(others.filter((msg) => /alive/.test(`${msg}`))).to.deep.equal([]);
      expect(others).to.have.length.below(4);
      expect(lines.filter(({ error }) => error !== undefined)).to.deep.equal([]);
    }).timeout(90_000);
  });
}
