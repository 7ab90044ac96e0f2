/**
 * The guarantee: if PostgreSQL waits for a synchronous standby, everything that a caller received is on the
 * standby. An unreachable standby makes outcomes unknown, and never lost.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { OnDuplicate } from '../../gen/leasehold/v1/jobs_pb.js';
import { findPostgres, startPostgres, startStandby, type TestCluster } from '../support/postgres.ts';
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

const deadlineMs = 1_500;
const submission = (clientRequestId: string) => ({
  addonId: 'a',
  jobType: 't',
  costUnits: 1,
  clientRequestId,
  onDuplicate: OnDuplicate.RETURN_EXISTING,
});

if (findPostgres()) {
  describe('a server on a primary with a synchronous standby', () => {
    let primary: TestCluster;
    let standby: TestCluster;
    let proxy: PostgresProxy;
    let store: PostgresStore;
    let server: ServerProcess;
    beforeEach(async function () {
      this.timeout(60_000);
      primary = await startPostgres();
      proxy = await PostgresProxy.start(primary.port);
      store = await createPostgresStore(primary);
      standby = await startStandby({ host: '127.0.0.1', port: proxy.port }, 'standby');
      await primary.query("alter system set synchronous_standby_names = 'standby'");
      await primary.query('select pg_reload_conf()');
      await until('the standby to be synchronous', async () => {
        const state = await primary.query('select sync_state from pg_stat_replication');
        return state === 'sync';
      });
      server = await startServer(store.env);
    });
    afterEach(async function () {
      this.timeout(60_000);
      await server.kill();
      await proxy.stop();
      await standby.stop();
      await primary.stop();
    });

    /** Submits once, and returns what was acknowledged or refused. */
    const submit = async (key: string, timeoutMs = deadlineMs): Promise<string> => {
      using client = connect(server);
      return await client.jobs.submitJob(submission(key), { timeoutMs }).then(
        ({ job }) => job?.jobId ?? '',
        (error: unknown) => codeOf(error),
      );
    };
    const waitingForStandby = () =>
      store.query("select count(*) from pg_stat_activity where wait_event = 'SyncRep'");
    const isAcknowledged = (answer: string) => /^[0-9a-f-]{36}$/.test(answer);

    it('loses no acknowledged submission when the standby takes over (V2)', async () => {
      expect(await submit('before')).to.satisfy(isAcknowledged);
      proxy.cutOff();
      const acknowledged = new Map<string, string>();
      await Promise.all(
        ['a', 'b', 'c', 'd'].map(async (key) => {
          for (let attempt = 0; attempt < 4; attempt++) {
            const answer = await submit(key);
            if (isAcknowledged(answer)) acknowledged.set(key, answer);
          }
        }),
      );
      await primary.kill();
      await standby.query('select pg_promote()');
      const there = (await standby.query('select job_id from jobs', store.name)).split('\n');
      expect([...acknowledged.values()].filter((jobId) => !there.includes(jobId))).to.deep.equal([]);
      expect(there).to.have.length(1 + acknowledged.size);
    }).timeout(60_000);

    it('answers unavailable for a canceled wait, and acknowledges once the standby caught up (V2)', async () => {
      expect(await submit('before')).to.satisfy(isAcknowledged);
      proxy.cutOff();
      const waiting = submit('cancelled', 15_000);
      await until('a commit that waits', async () => Number(await waitingForStandby()) > 0);
      await store.query("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'");
      expect(await waiting).to.equal('Unavailable');
      await until('the row', async () =>
        (await store.query('select client_request_id from jobs')).includes('cancelled'),
      );
      expect(await submit('cancelled')).to.equal('DeadlineExceeded');
      proxy.open();
      await until('the answer', async () => isAcknowledged(await submit('cancelled', 5_000)), 30_000);
      expect(
        await standby.query("select count(*) from jobs where client_request_id = 'cancelled'", store.name),
      ).to.equal('1');
    }).timeout(60_000);

    it("acknowledges a row that a primary's restart revealed only when the standby has it (V2)", async () => {
      expect(await submit('before')).to.satisfy(isAcknowledged);
      proxy.cutOff();
      const lost = submit('restarted', 10_000);
      await until('a commit that waits', async () => Number(await waitingForStandby()) > 0);
      await primary.restart();
      expect(await lost).to.equal('Unavailable');
      expect(await store.query('select count(*) from jobs')).to.equal('2');
      await until('the server to be back', async () => (await submit('restarted')) === 'DeadlineExceeded');
      proxy.open();
      await until('the answer', async () => isAcknowledged(await submit('restarted', 5_000)), 30_000);
    }).timeout(60_000);

    it('delays an answer until the standby has every row that was read for it (V2)', async () => {
      await using database = await openStore(store);
      await database.awaitStandby();
      proxy.cutOff();
      const waiting = database.awaitStandby().then(() => 'settled');
      await database.ping();
      expect(await Promise.race([waiting, delay(1_000, 'waits')])).to.equal('waits');
      proxy.open();
      expect(await waiting).to.equal('settled');
    }).timeout(60_000);

    it('reports no success if a statement_timeout passes while a commit waits (V2)', async () => {
      proxy.cutOff();
      const session = await openSession(store.url);
      const notices: unknown[] = [];
      session.on('notice', (notice) => notices.push(notice));
      await session.query("set statement_timeout = '300ms'");
      const commit = session.query('insert into pulse (pulse_id, alive_at) values (2, now())').then(
        () => 'answered',
        () => 'failed',
      );
      expect(await Promise.race([commit, delay(1_500, 'waits')])).to.equal('waits');
      proxy.open();
      expect(await commit).to.equal('answered');
      expect(notices).to.deep.equal([]);
      await session.end();
    }).timeout(60_000);
  });
}
