/**
 * The guarantee: a server writes only to a schema that allows its version. A server serves a newer schema
 * that allows it. A schema that does not allow it prevents the start, and makes a running server refuse
 * writes while its reads continue.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { version } from '../../src/lib/version.ts';
import type { Sql } from '../../src/store/connection/sql.ts';
import { migrate } from '../../src/store/migrate.ts';
import { migrations } from '../../src/store/migrations/index.ts';
import {
  announceMigrations,
  unmetRequirement,
  withdrawMigrations,
} from '../../src/store/schema-compatibility.ts';
import { onEveryEngine, type TestStore } from '../support/engines.ts';
import { engineOn, submitted } from '../support/jobs.ts';
import { runCommand, startServer } from '../support/process.ts';
import { describeWith } from '../support/programs.ts';
import { eventually } from '../support/server.ts';
import { codeOf, connect, createPostgresStore, createStore, openStore } from '../support/server-clients.ts';
import { servingStatus } from '../support/wires.ts';

const future = '9999-future';
const job = { addonId: 'a', jobType: 't', costUnits: 1 };

/** The trace of a newer server: a migration that this version does not know. */
async function migrateAsNewer(sql: Sql, oldestWriter: string): Promise<void> {
  await sql.query('insert into leasehold_migrations (name) values ($1)', [future]);
  await sql.query('insert into schema_compatibility (migration, oldest_writer) values ($1, $2)', [
    future,
    oldestWriter,
  ]);
}

describe('the schema version (V5)', () => {
  onEveryEngine((engine) => {
    it('refuses to start a server that is older than the schema allows', async () => {
      await using store = await createStore(engine);
      await using database = await openStore(store);
      await migrateAsNewer(database, '99.0.0');
      await database.close();
      const { code, stderr, stdout } = await runCommand(['serve'], store.env);
      expect({ code, stdout }, stderr).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.include(
        `schema too new: migration ${future} needs version 99.0.0 or later to write, and this server is ${version}`,
      );
    });

    it('starts and writes beside an unknown migration that allows it', async () => {
      await using store = await createStore(engine);
      await using database = await openStore(store);
      await migrateAsNewer(database, version);
      await database.close();
      await using server = await startServer(store.env);
      using client = connect(server);
      expect((await client.jobs.submitJob(job)).job?.addonId).to.equal('a');
    });

    it('records the oldest writer of every migration, and deletes one that never ran', async () => {
      await using store = await engine.open();
      const { database } = store;
      const rows = () =>
        database.query<{ migration: string; oldest_writer: string }>(
          'select migration, oldest_writer from schema_compatibility order by migration',
          [],
        );
      const expected = migrations.map(({ name, oldestWriter }) => ({
        migration: name,
        oldest_writer: oldestWriter,
      }));
      expect(await rows()).to.deep.equal(expected);
      await database.query("insert into schema_compatibility values ($1, '99.0.0')", [future]);
      expect(await unmetRequirement(database)).to.deep.equal({ migration: future, oldestWriter: '99.0.0' });
      await database.close();
      await using reopened = await openStore(store);
      await migrate(reopened);
      expect(await unmetRequirement(reopened)).to.equal(undefined);
    });

    it('repairs a database that ran the unreleased form of migration 0010', async () => {
      await using store = await createStore(engine);
      const [recorded, pruned, told] = await asUnreleased(store);
      await using server = await startServer(store.env);
      using client = connect(server);
      const events = async (jobId: string) =>
        (await client.jobs.listJobEvents({ jobId })).events.map(({ type }) => type);
      expect(await events(recorded)).to.deep.equal(['JOB_SUBMITTED']);
      expect(await events(pruned)).to.deep.equal([]);
      expect(await events(told)).to.deep.equal(['JOB_SUBMITTED']);
      const { job: later } = await client.jobs.submitJob(job);
      expect(await events(later?.jobId ?? '')).to.deep.equal(['JOB_SUBMITTED']);
    });
  });
});

/**
 * Leaves a database as the unreleased form of migration 0010 did, with three jobs: one whose submission has a
 * row of its own, an older one whose row was pruned, and one that was submitted after the migration.
 */
async function asUnreleased(store: TestStore): Promise<[string, string, string]> {
  await using database = await openStore(store);
  const engine = engineOn(database);
  const [pruned, recorded, told] = await submitted(engine, {}, {}, {});
  await engine.stop();
  await database.query(
    `insert into job_events (event_id, at, job_id, type, to_state, actor, data)
    select seq, created_at, job_id, 0, 0, addon_id, '{"priority": "NORMAL"}' from jobs where job_id = $1`,
    [recorded?.jobId],
  );
  await database.query("update jobs set created_at = created_at - interval '1 hour' where job_id = $1", [
    pruned?.jobId,
  ]);
  // The view of that form did not read the table.
  await database.query('drop view scheduler_events', []);
  await database.query('drop table submissions_told, schema_compatibility', []);
  await database.query("delete from leasehold_migrations where name like '0011-%'", []);
  return [recorded?.jobId ?? '', pruned?.jobId ?? '', told?.jobId ?? ''];
}

describeWith('postgresql', 'a running server while a newer one migrates (V5)', () => {
  it('answers writes with unavailable: schema too new until the schema allows it, and still reads', async () => {
    await using store = await createPostgresStore();
    await using server = await startServer(store.env);
    await using operator = await openStore(store);
    using client = connect(server);
    const { job: made } = await client.jobs.submitJob(job);
    await migrateAsNewer(operator, '99.0.0');
    const failure = await eventually('a write to be refused', async () =>
      client.jobs.submitJob(job).then(
        () => undefined,
        (error: unknown) => error as Error,
      ),
    );
    expect(codeOf(failure)).to.equal('Unavailable');
    expect(failure.message).to.include(`schema too new: migration ${future}`);
    expect((await client.jobs.getJob({ jobId: made?.jobId ?? '' })).job?.addonId).to.equal('a');
    const answer = await client.rest('POST', '/api/scheduler/jobs/claim', { worker_id: 'w' });
    expect(answer.status).to.equal(503);
    expect(answer.body).to.include({ code: 'unavailable' });
    await operator.query('delete from schema_compatibility where migration = $1', [future]);
    await eventually('a write to be accepted again', async () => {
      try {
        return await client.jobs.submitJob(job);
      } catch {
        return undefined;
      }
    });
  });

  it('reports not ready while writes are refused, over HTTP, gRPC and doctor', async () => {
    await using store = await createPostgresStore();
    await using server = await startServer(store.env);
    await using operator = await openStore(store);
    using client = connect(server);
    const readiness = () => client.rest('GET', '/readyz');
    expect(await readiness()).to.deep.equal({ status: 200, body: { status: 'ready', database: 'up' } });
    await migrateAsNewer(operator, '99.0.0');
    const refused = await eventually('the server to be not ready', async () => {
      const answer = await readiness();
      return answer.status === 503 ? answer : undefined;
    });
    const reason = `schema too new: migration ${future} needs version 99.0.0 or later to write, and this server is ${version}`;
    expect(refused.body).to.deep.equal({ status: 'unavailable', database: 'up', reason });
    expect(await servingStatus(server.grpc, '')).to.equal('NOT_SERVING');
    const doctor = await runCommand(['doctor'], { LEASEHOLD_URL: server.http });
    expect(doctor.code).to.equal(1);
    expect(doctor.stdout).to.include(reason);
    await operator.query('delete from schema_compatibility where migration = $1', [future]);
    await eventually('the server to be ready', async () => (await readiness()).status === 200 || undefined);
    expect(await servingStatus(server.grpc, '')).to.equal('SERVING');
  });

  it('logs the refusal of writes once, and not with each run of its services', async () => {
    await using store = await createPostgresStore();
    await using server = await startServer(store.env);
    await using operator = await openStore(store);
    await migrateAsNewer(operator, '99.0.0');
    const refusals = () => server.stderr.filter((line) => line.includes('schema too new'));
    await eventually('writes to be refused', async () => refusals().length > 0 || undefined);
    // The outage monitor and the statistics write every second.
    await delay(2_500);
    expect(refusals()).to.have.length(1);
    expect(refusals()[0]).to.include('"level":"error"');
  });

  it('gets time to read an announcement, but only one that raises the requirement', async () => {
    await using store = await createPostgresStore();
    await using database = await openStore(store);
    await migrate(database);
    const { name = '', oldestWriter } = migrations.find((one) => one.oldestWriter !== '0.1.0') ?? {};
    expect(oldestWriter).to.equal('0.2.0');
    const forget = () =>
      database.query("delete from schema_compatibility where oldest_writer <> '0.1.0'", []);
    await forget();
    expect(await announceMigrations(database, [name])).to.equal(0);
    await withdrawMigrations(database, [name]);
    await using _server = await startServer(store.env);
    await eventually('the server to listen', async () => {
      await forget();
      return (await announceMigrations(database, [name])) > 1_000 || undefined;
    });
    expect(await announceMigrations(database, [name])).to.equal(0);
  });
});
