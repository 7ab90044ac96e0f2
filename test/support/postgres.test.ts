import { existsSync } from 'node:fs';
import { expect } from 'chai';
import { findPostgres, startPostgres, type TestCluster } from './postgres.ts';

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

if (findPostgres()) {
  describe('a PostgreSQL made for tests', () => {
    let cluster: TestCluster;
    before(async () => {
      cluster = await startPostgres();
    });
    after(() => cluster.stop());

    it('is durable unless told otherwise', async () => {
      expect(await cluster.query('show fsync')).to.equal('on');
      expect(await cluster.query('show synchronous_commit')).to.equal('on');
    });

    it('copies a template, several times at once, and drops a database in use', async () => {
      const template = await cluster.createDatabase();
      await cluster.query('create table marks (mark int)', template);
      const copies = await Promise.all([1, 2, 3].map(() => cluster.createDatabase(template)));
      for (const copy of copies)
        expect(await cluster.query('select count(*) from marks', copy)).to.equal('0');
      const busy = copies[0] as string;
      const sleeper = cluster.query('select pg_sleep(60)', busy).catch((error: Error) => error);
      await cluster.dropDatabase(busy);
      expect(await sleeper).to.be.instanceOf(Error);
    });

    it('comes back from a kill on the same address with all that was committed', async () => {
      const database = await cluster.createDatabase();
      await cluster.query('create table marks (mark int); insert into marks values (7)', database);
      const address = cluster.url(database);
      const pid = cluster.pid as number;
      await cluster.kill();
      expect(isAlive(pid)).to.equal(false);
      await cluster.restart();
      expect(cluster.url(database)).to.equal(address);
      expect(await cluster.query('select mark from marks', database)).to.equal('7');
    });

    it('leaves no process and no folder behind when it stops', async () => {
      const other = await startPostgres({ durable: false });
      expect(await other.query('show fsync')).to.equal('off');
      const pid = other.pid as number;
      await other.stop();
      expect(isAlive(pid)).to.equal(false);
      expect(existsSync(other.socketFolder)).to.equal(false);
      await other.stop();
    });
  });
}
