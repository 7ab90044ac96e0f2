import { expect } from 'chai';
import { coverage, onEveryEngine } from './engines.ts';

onEveryEngine((engine) => {
  const tables = `select table_name from information_schema.tables where table_schema = 'public'`;

  it('hands out databases that are migrated and know nothing of each other', async () => {
    await using first = await engine.open();
    await first.database.query('create table marks (mark int)', []);
    await using second = await engine.open();
    const names = (await second.database.query<{ table_name: string }>(tables, [])).map(
      (row) => row.table_name,
    );
    expect(names).to.include('leasehold_migrations').and.not.to.include('marks');
    expect(coverage()).to.include(engine.name);
  });

  it('deletes a database that is closed, and closes it only once', async () => {
    const opened = await engine.open();
    await opened.close();
    await opened.close();
  });
});
