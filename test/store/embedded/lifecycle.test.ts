import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { Worker } from 'node:worker_threads';
import { expect } from 'chai';
import { EmbeddedDatabaseGoneError, openEmbedded } from '../../../src/store/embedded/client.ts';
import { DirectoryHeldError } from '../../../src/store/embedded/directory-lock.ts';
import {
  connect,
  killed,
  nextLine,
  rejection,
  rowsOf,
  startFixture,
  temporaryDirectory,
  withDatabase,
} from '../../support/embedded-database.ts';

describe('the lifecycle of the embedded database', function () {
  this.timeout(10_000);
  const place = temporaryDirectory();

  after(() => place.remove());

  it('removes the files of a process that was killed while creating the database', async () => {
    mkdirSync(join(place.dir, 'pg.tmp', 'base'), { recursive: true });
    writeFileSync(join(place.dir, 'pg.tmp', 'PG_VERSION'), '1');
    await withDatabase(place.dir, async (kysely) => {
      expect(await rowsOf(kysely, 'select 1 as one')).to.deep.equal([{ one: 1 }]);
    });
    expect(existsSync(join(place.dir, 'pg.tmp'))).to.equal(false);
  });

  it('keeps data when it is closed and opened again', async () => {
    await withDatabase(place.dir, async (kysely) => {
      await rowsOf(kysely, 'create table kept as select 42 as answer');
    });
    await withDatabase(place.dir, async (kysely) => {
      expect(await rowsOf(kysely, 'select * from kept')).to.deep.equal([{ answer: 42 }]);
    });
  });

  it('refuses an open directory, and opens it after the close', async () => {
    await using first = await openEmbedded(place.dir);
    expect(await rejection(openEmbedded(place.dir))).to.be.instanceOf(DirectoryHeldError);
    await first.close();
    await withDatabase(place.dir, async () => {});
  });

  it('releases the directory when it cannot start', async () => {
    const refused = await rejection(openEmbedded(place.dir, { sessionSql: ['set no_such_setting = 1'] }));
    expect(refused).to.be.instanceOf(EmbeddedDatabaseGoneError);
    expect(refused.message).to.include('no_such_setting');
    await withDatabase(place.dir, async () => {});
  });

  it('finishes sent statements before it closes, and rejects later ones', async () => {
    const database = await openEmbedded(place.dir);
    const { kysely } = await connect(database.ormOptions);
    await rowsOf(kysely, 'create table written (id int)');
    // Two at once, so that the transaction and the insert each find an open connection.
    await Promise.all([rowsOf(kysely, 'select 1'), rowsOf(kysely, 'select 1')]);
    const abandoned = await kysely.startTransaction().execute();
    await rowsOf(abandoned, 'insert into written values (1)');
    const sent = rowsOf(kysely, 'insert into written values (2) returning id');
    await setImmediate();
    const [inserted] = await Promise.all([sent, database.close(), database.close()]);
    expect(inserted).to.deep.equal([{ id: 2 }]);
    expect(database.closed).to.equal(true);
    expect(await rejection(rowsOf(kysely, 'select 1'))).to.be.instanceOf(EmbeddedDatabaseGoneError);
    await rejection(abandoned.rollback().execute());
    await withDatabase(place.dir, async (again) => {
      expect(await rowsOf(again, 'select id from written')).to.deep.equal([{ id: 2 }]);
    });
  });

  it('rejects waiting and later statements when its thread dies', async () => {
    const started = Promise.withResolvers<Worker>();
    process.once('worker', started.resolve);
    const database = await openEmbedded(place.dir);
    const { kysely, close } = await connect(database.ormOptions);
    const waiting = Promise.all([1, 2, 3].map(() => rejection(rowsOf(kysely, 'select pg_sleep(30)'))));
    const thread = await started.promise;
    await setImmediate();
    await thread.terminate();
    for (const error of await waiting) expect(error).to.be.instanceOf(EmbeddedDatabaseGoneError);
    expect(await database.lost).to.be.instanceOf(EmbeddedDatabaseGoneError);
    expect(await rejection(rowsOf(kysely, 'select 1'))).to.be.instanceOf(EmbeddedDatabaseGoneError);
    await close();
    await database.close();
    await withDatabase(place.dir, async () => {});
  });

  it('lets the process exit once it is closed', async () => {
    const child = startFixture('open-and-close', place.dir);
    expect(await nextLine(child)).to.equal('closed');
    await child.exited;
    expect(child.process.exitCode).to.equal(0);
    expect(child.errors.join('')).to.equal('');
    await killed(child);
  });
});
