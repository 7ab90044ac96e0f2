import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { expect } from 'chai';
import { prepareDataDirectory } from '../../../src/store/embedded/data-directory.ts';
import { Housekeeping, WAL_SETTINGS } from '../../../src/store/embedded/housekeeping.ts';
import { temporaryDirectory } from '../../support/embedded-database.ts';

describe('housekeeping of the embedded database', function () {
  this.timeout(20_000);
  const place = temporaryDirectory();
  let database: PGlite;
  let housekeeping: Housekeeping;

  before(async () => {
    database = await PGlite.create(await prepareDataDirectory(place.dir), {
      startParams: [...PGlite.defaultStartParams, ...WAL_SETTINGS.flatMap((setting) => ['-c', setting])],
    });
    housekeeping = new Housekeeping(database, { whenIdle: (errand) => errand() });
  });

  after(async () => {
    await database.close();
    place.remove();
  });

  afterEach(async () => {
    await database.exec('drop table if exists hot');
    await drained();
  });

  /** Runs until nothing is left to do. */
  async function drained(): Promise<string[]> {
    const done: string[] = [];
    for (let did = await housekeeping.runOnce(); did !== 'nothing'; did = await housekeeping.runOnce())
      done.push(did);
    return done;
  }

  async function deadRows(): Promise<number> {
    await database.query('select pg_stat_force_next_flush()');
    const { rows } = await database.query<{ n: number }>(
      `select n_dead_tup::int as n from pg_stat_user_tables where relname = 'hot'`,
    );
    return rows[0]?.n ?? Number.NaN;
  }

  async function createHot(settings: string): Promise<void> {
    await database.exec(`create table hot (id int primary key, beat int) with (${settings})`);
    await database.exec('insert into hot select n, 0 from generate_series(1, 500) n');
    await database.exec('update hot set beat = beat + 1');
  }

  it('does nothing when nothing was written', async () => {
    await drained();
    expect(await housekeeping.runOnce()).to.equal('nothing');
  });

  it('vacuums a due table once', async () => {
    await createHot('fillfactor = 100');
    expect(await deadRows()).to.equal(500);
    expect(await drained()).to.deep.equal(['vacuum']);
    expect(await deadRows()).to.equal(0);
  });

  it('prefers the settings of the table over those of the server', async () => {
    await createHot('autovacuum_vacuum_threshold = 1200, autovacuum_vacuum_scale_factor = 0');
    expect(await drained()).to.deep.equal([]);
    await database.exec('update hot set beat = beat + 1');
    await database.exec('update hot set beat = beat + 1');
    expect(await drained()).to.deep.equal(['vacuum']);
  });

  it('skips a table whose settings disable autovacuum', async () => {
    await createHot('autovacuum_enabled = false');
    expect(await drained()).to.deep.equal([]);
  });

  it('checkpoints while the log is written, so that the log stays bounded', async () => {
    await database.exec('create table hot (text text) with (autovacuum_enabled = false)');
    let checkpoints = 0;
    for (let n = 0; n < 8; n += 1) {
      await database.exec(`insert into hot select repeat('x', 1000) from generate_series(1, 35000)`);
      await database.exec('truncate hot');
      if ((await housekeeping.runOnce()) === 'checkpoint') checkpoints += 1;
    }
    expect(checkpoints).to.be.at.least(6);
    const segments = readdirSync(join(place.dir, 'pg', 'pg_wal')).filter((name) =>
      /^[0-9A-F]{24}$/.test(name),
    );
    expect(segments.length * 16).to.be.at.most(128);
  });

  it('starts and stops idempotently', () => {
    housekeeping.start();
    housekeeping.start();
    housekeeping.stop();
    housekeeping.stop();
  });
});
