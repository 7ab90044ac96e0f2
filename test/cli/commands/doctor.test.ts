/** `leasehold doctor`, against servers and databases that really have the faults it reports. */

import { expect } from 'chai';
import pg from 'pg';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { thresholds } from '../../../src/domain/doctor/facts.ts';
import type { Finding } from '../../../src/domain/doctor/finding.ts';
import { Doctor } from '../../../src/engine/doctor/doctor.ts';
import { version } from '../../../src/lib/version.ts';
import type { Database } from '../../../src/store/database.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { databaseTransport } from '../../../src/transport/database-transport.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { silentLog } from '../../support/jobs.ts';
import { type Body, get, post } from '../../support/jobs-api.ts';
import { findPostgres, startPostgres, type TestCluster } from '../../support/postgres.ts';
import { runCommand } from '../../support/process.ts';
import { describeWithRedis, startRedis, type TestRedis } from '../../support/redis.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

const named = (findings: readonly Finding[], code: string): Finding =>
  findings.find((finding) => finding.code === code) ??
  expect.fail(`no ${code} among ${findings.map((finding) => finding.code)}`);

onEveryEngine((engine) => {
  describe('Doctor', () => {
    let store: TestDatabase;
    before(async () => {
      store = await engine.open();
    });
    after(() => store.close());

    const doctor = (more: Partial<ConstructorParameters<typeof Doctor>[0]> = {}) =>
      new Doctor({
        database: store.database,
        transport: databaseTransport,
        poolMax: 10,
        capacityTotal: 100,
        ...more,
      });
    const find = async (code: string, more = {}) => named((await doctor(more).runOnce()).findings, code);

    it('examines everything, and reports a finding for each check', async () => {
      const { findings, version } = await doctor().runOnce();
      for (const { text, advice, level } of findings) {
        expect(text)
          .to.be.a('string')
          .and.not.to.match(/undefined|null|NaN/);
        expect(advice === null, text).to.equal(level === 'OK');
      }
      const codes = findings.map(({ code }) => code);
      const always = [
        'server_version',
        'database_version',
        'round_trip',
        'transaction_age',
        'clock_difference',
      ];
      expect(codes).to.include.members([
        ...always,
        'migrations',
        'dead_rows',
        'reaper',
        'capacity_count',
        'redis',
      ]);
      if (engine.name === 'embedded') expect(codes).to.include('durability').and.not.to.include('fsync');
      else expect(codes).to.include.members(['fsync', 'autovacuum', 'connections', 'oldest_transaction']);
      expect(named(findings, 'migrations').level).to.equal('OK');
      expect(version).to.match(/^\d+\.\d+\.\d+/);
    });

    it('reports the difference of the clocks, with no more precision than it can measure', async () => {
      expect((await find('clock_difference')).level).to.equal('OK');
      const behind = await find('clock_difference', { nowMs: () => Date.now() - 30_000 });
      expect(behind.level).to.equal('WARN');
      expect(behind.text).to.match(/^the clock of the database is \d+ s ahead of that of this server$/);
      const wrong = await find('clock_difference', { nowMs: () => Date.now() + 3_600_000 });
      expect([wrong.level, wrong.facts.ahead_ms]).to.satisfy(
        ([level, ms]: [string, number]) => level === 'PROBLEM' && Math.abs(ms + 3_600_000) < 60_000,
      );
    });

    it('names missing migrations, and those of a newer version', async () => {
      await store.database.query(
        "update leasehold_migrations set name = '9999-later' where name = '0004-files'",
        [],
      );
      const missing = await find('migrations');
      expect([missing.level, missing.facts.missing]).to.deep.equal(['PROBLEM', ['0004-files']]);
      await store.database.query(
        "insert into leasehold_migrations (name, executed_at) values ('0004-files', now())",
        [],
      );
      const newer = await find('migrations');
      expect([newer.level, newer.facts.newer]).to.deep.equal(['WARN', ['9999-later']]);
      await store.database.query("delete from leasehold_migrations where name = '9999-later'", []);
    });

    it('reports overdue work of the reaper, and a wrong count of used units', async () => {
      await store.database.query(
        `insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, check_at, attempts, attempts_limit,
          claims_lost, cancel_requested, updated_at)
        values (gen_random_uuid(), 1, 1, 1, 1, 1, 1, clock_timestamp() - interval '10 min', 0, 1, 0, false, now())`,
        [],
      );
      await store.database.query('update capacity set used = 7', []);
      expect((await find('reaper')).level).to.equal('PROBLEM');
      const counted = await find('capacity_count');
      expect([counted.level, counted.facts]).to.deep.equal(['WARN', { used: 7, leased: 0 }]);
      await store.database.query('delete from live_jobs', []);
      await store.database.query('update capacity set used = 0', []);
      expect((await find('reaper')).level).to.equal('OK');
    });

    if (engine.name === 'embedded') return;
    it('answers in time if the database never responds', async () => {
      const silent = Object.create(store.database) as Database;
      silent.query = () => new Promise(() => {});
      const { findings } = await doctor({ database: silent, timeoutMs: 200 }).runOnce();
      expect(named(findings, 'database')).to.include({
        level: 'PROBLEM',
        text: 'the database does not answer: nothing came within 0.2 s',
      });
    });

    it('answers in time if a table is locked, and names what it could not read', async () => {
      const holder = new pg.Client(store.options.url);
      await holder.connect();
      try {
        await holder.query('begin');
        await holder.query('lock table leasehold_migrations in access exclusive mode');
        const { findings } = await doctor().runOnce();
        expect(named(findings, 'migrations')).to.include({ level: 'WARN' });
        expect(named(findings, 'migrations').text).to.include('could not be read in time');
        // Reading the size of the table also waits for its lock.
        expect(named(findings, 'tables').level).to.equal('WARN');
        for (const code of ['reaper', 'connections', 'replication_slots', 'clock_difference'])
          expect(named(findings, code).level, code).to.equal('OK');
      } finally {
        await holder.end();
      }
    });
  });
});

if (findPostgres()) {
  describe('leasehold doctor', () => {
    let cluster: TestCluster;
    let url: string;
    let server: TestServer;
    before(async function () {
      this.timeout(60_000);
      cluster = await startPostgres({
        durable: false,
        settings: {
          autovacuum: 'off',
          synchronous_commit: 'off',
          shared_buffers: '16MB',
          max_connections: '30',
          max_prepared_transactions: '2',
        },
      });
      url = cluster.url(await cluster.createDatabase());
      server = await startTestServer(
        {
          name: 'postgresql',
          create: async () => ({
            options: { url, dataDir: '', poolMax: 30, log: silentLog },
            env: { DATABASE_URL: url },
            remove: async () => {},
          }),
          open: () => expect.fail('not asked for'),
        },
        {},
      );
    });
    after(async () => {
      await server.stop();
      await cluster.stop();
    });

    const run = (...args: string[]) => runCommand(['doctor', ...args], { LEASEHOLD_URL: server.http });
    const findings = async (): Promise<Finding[]> => (await get(server, '/api/system/doctor')).body.findings;

    it('names every invalid setting and its remedy, and exits with 1', async () => {
      const { code, stdout, stderr } = await run();
      expect([code, stderr]).to.deep.equal([1, '']);
      const lines = stdout.split('\n');
      for (const [setting, level] of [
        ['fsync', 'PROBLEM'],
        ['full_page_writes', 'PROBLEM'],
        ['synchronous_commit', 'PROBLEM'],
        ['autovacuum', 'PROBLEM'],
        ['shared_buffers', 'WARN'],
        ['connections', 'PROBLEM'],
        ['track_counts', 'OK'],
        ['default_transaction_isolation', 'OK'],
        ['database_version', 'OK'],
        ['clock_difference', 'OK'],
        ['client_clock_difference', 'OK'],
        ['server_reachable', 'OK'],
        ['ready', 'OK'],
        ['migrations', 'OK'],
        ['redis', 'OK'],
      ] as const) {
        const at = lines.findIndex((line) => new RegExp(`^${level} +${setting} +\\S`).test(line));
        expect(at, `${level} ${setting} in:\n${stdout}`).not.to.equal(-1);
        expect(lines[at + 1]?.includes('→'), setting).to.equal(level !== 'OK');
      }
      expect(lines.at(-1)).to.match(/^\d+ problems, \d+ warnings?, \d+ OK$/);
    });

    it('prints the same findings as JSON and over RPC', async () => {
      const { code, stdout } = await run('--json');
      const told = JSON.parse(stdout);
      expect([code, told.level, told.version]).to.deep.equal([1, 'PROBLEM', version]);
      const rest = await findings();
      expect(told.findings.slice(3).map(({ code }: Body) => code)).to.deep.equal(
        rest.map(({ code }) => code),
      );
      const { body } = await post(server, `/${StatsService.typeName}/Diagnose`, {});
      expect(body.diagnosis.level).to.equal('LEVEL_PROBLEM');
      expect(body.diagnosis.findings.map(({ code, level }: Body) => [code, level])).to.deep.equal(
        rest.map(({ code, level }) => [code, `LEVEL_${level}`]),
      );
    });

    it('names what blocks vacuuming: an old transaction, a prepared one, an unread slot', async () => {
      const holder = new pg.Client({ connectionString: url, application_name: 'a report' });
      await holder.connect();
      try {
        await holder.query('begin isolation level repeatable read');
        const [{ pid } = { pid: 0 }] = (await holder.query<{ pid: number }>('select pg_backend_pid() as pid'))
          .rows;
        // The rest does not depend on the age limit; the test avoids waiting for it.
        const impatient = new Doctor({
          database: server.database,
          transport: databaseTransport,
          poolMax: 10,
          capacityTotal: 100,
          limits: { ...thresholds, oldTransactionMs: 0 },
        });
        const old = named((await impatient.runOnce()).findings, 'oldest_transaction');
        expect(old.level).to.equal('WARN');
        expect(old.text).to.include(
          `a transaction of a report of postgres (process ${pid}, idle in transaction)`,
        );
        expect(old.advice).to.include(`pg_terminate_backend(${pid})`);
        expect(named(await findings(), 'oldest_transaction').level).to.equal('OK');
        await holder.query('rollback');

        await holder.query('begin');
        await holder.query("prepare transaction 'forgotten'");
        await holder.query("select pg_create_physical_replication_slot('nobody', true)");
        const found = await findings();
        expect(named(found, 'prepared_transactions')).to.include({ level: 'WARN' });
        expect(named(found, 'prepared_transactions').text).to.include('forgotten');
        expect(named(found, 'replication_slots')).to.include({ level: 'WARN' });
        expect(named(found, 'replication_slots').text).to.match(/slot nobody, and keeps \d/);
        await holder.query("rollback prepared 'forgotten'");
        await holder.query("select pg_drop_replication_slot('nobody')");
      } finally {
        await holder.end();
      }
    });

    it('reports how many sessions its role cannot see', async () => {
      await cluster.query('create role weak login');
      const name = new URL(url).pathname.slice(1);
      await cluster.query(
        'grant usage on schema public to weak; grant select on all tables in schema public to weak',
        name,
      );
      const weak = await openDatabase({
        ...server.store.options,
        url: url.replace('postgres@', 'weak@'),
        poolMax: 4,
      });
      try {
        const seen = new Doctor({
          database: weak,
          transport: databaseTransport,
          poolMax: 2,
          capacityTotal: 100,
        });
        const oldest = named((await seen.runOnce()).findings, 'oldest_transaction');
        expect(oldest.facts.hidden).to.be.at.least(1);
        expect(oldest.text).to.match(/those of \d+ other sessions may not be seen \(grant pg_monitor/);
      } finally {
        await weak.close();
      }
    });

    it('counts dead tuples that vacuum does not remove', async () => {
      await cluster.query(
        "insert into file_losses select 'o', gen_random_uuid(), 'r', 'p', 1, now(), 'x' from generate_series(1, 60000); delete from file_losses",
        new URL(url).pathname.slice(1),
      );
      const dead = await eventually('the statistics tell of them', async () => {
        const found = (await findings()).find(({ code, level }) => code === 'dead_rows' && level !== 'OK');
        return found;
      });
      expect(dead.facts).to.include({ table: 'file_losses', live_rows: 0, last_vacuum: null });
      expect(dead.advice).to.include('vacuum file_losses');
    });

    it('answers in time if the database does not', async () => {
      await cluster.kill();
      try {
        const away = await run('--json');
        const told = JSON.parse(away.stdout);
        expect([away.code, told.level]).to.deep.equal([1, 'PROBLEM']);
        expect(named(told.findings, 'database').level).to.equal('PROBLEM');
        const ready = named(told.findings, 'ready');
        expect([ready.level, ready.text]).to.deep.equal([
          'PROBLEM',
          'it is not ready: it cannot serve, database down',
        ]);
        expect(told.findings.map(({ code }: Body) => code)).not.to.include('fsync');
      } finally {
        await cluster.restart();
      }
      await eventually('it is back', async () =>
        (await findings()).some(({ code }) => code === 'database_version') ? true : undefined,
      );
    });

    it('reports that no server runs, and exits with 1', async () => {
      const { code, stdout } = await run('--url', 'http://127.0.0.1:9');
      expect(code).to.equal(1);
      expect(stdout).to.match(
        /^PROBLEM {2}server_reachable {2}there is no server at http:\/\/127\.0\.0\.1:9/,
      );
    });
  });

  describeWithRedis('leasehold doctor, of a Redis', () => {
    let redis: TestRedis;
    let store: TestDatabase;
    let server: TestServer;
    onEveryEngine((engine) => {
      if (engine.name === 'embedded') return;
      before(async () => {
        redis = await startRedis();
        store = await engine.open();
        server = await startTestServer(engine, { settings: { redisUrl: redis.url }, shared: store });
      });
      after(async () => {
        await server.stop();
        await store.close();
        await redis.stop();
      });

      const found = async (code: string): Promise<Finding> =>
        named((await get(server, '/api/system/doctor')).body.findings, code);

      it("reports Redis' version, memory, persistence and eviction policy", async () => {
        await eventually('Redis is up', async () =>
          (await get(server, '/readyz')).body.redis === 'up' ? true : undefined,
        );
        for (const code of ['redis_version', 'redis_maxmemory_policy', 'redis_memory', 'redis_persistence'])
          expect((await found(code)).level, code).to.equal('OK');
        expect((await found('redis_persistence')).text).to.include('keeps nothing on the disk');
        const client = await redis.client();
        await client.configSet('maxmemory-policy', 'allkeys-lru');
        const policy = await found('redis_maxmemory_policy');
        expect([policy.level, policy.facts]).to.deep.equal(['PROBLEM', { maxmemory_policy: 'allkeys-lru' }]);
        expect(policy.advice).to.include('noeviction');
        await client.configSet('maxmemory-policy', 'noeviction');
        const { used_bytes } = (await found('redis_memory')).facts;
        await client.configSet('maxmemory', String(Math.round(Number(used_bytes) * 1.02)));
        expect((await found('redis_memory')).level).to.equal('WARN');
        await client.configSet('maxmemory', '0');
        await client.configSet('appendonly', 'yes');
        expect((await found('redis_persistence')).facts).to.include({ append_only: true });
      });

      it('answers in time if Redis hangs, and reports Redis as unavailable if it is gone', async () => {
        redis.pause();
        const hung = await found('redis');
        expect([hung.level, hung.text.includes('away')]).to.deep.equal(['PROBLEM', true]);
        redis.resume();
        await eventually('Redis is up', async () =>
          (await get(server, '/readyz')).body.redis === 'up' ? true : undefined,
        );
        await redis.kill();
        const gone = await found('redis');
        expect([gone.level, gone.text.includes('the database alone')]).to.deep.equal(['PROBLEM', true]);
        // The server's log lines about the absent Redis are expected.
        server.complaints.splice(0);
      });
    });
  });
}
