/** The table of workers: written rarely, and cleaned up in time also when the server that wrote it dies. */
import { expect } from 'chai';
import { workerGoneMs, workerRefreshMs } from '../../../src/domain/workers/worker.ts';
import { KnownWorkers } from '../../../src/engine/workers/known-workers.ts';
import { WorkerDirectory } from '../../../src/engine/workers/worker-directory.ts';
import { createLog } from '../../../src/lib/log.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { eventually } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('WorkerDirectory', () => {
    let store: TestDatabase;
    let now: number;
    const open: WorkerDirectory[] = [];
    before(async () => {
      store = await engine.open();
    });
    after(() => store.close());
    beforeEach(() => {
      now = 1_000;
    });
    afterEach(async () => {
      for (const directory of open.splice(0)) await directory.stop();
      await store.database.query('truncate workers', []);
    });

    const server = (lines: string[] = []) => {
      const known = new KnownWorkers(() => now);
      const log = createLog({ level: 'debug', human: false, write: (line) => void lines.push(line) });
      const directory = new WorkerDirectory({ database: store.database, known, log });
      open.push(directory);
      return { known, directory };
    };
    const rows = async (): Promise<string[]> =>
      (
        await store.database.query<{ row: string }>(
          `select worker_id || ' ' || work_streams || ' ' || xmin as row from workers
          where expires_at > clock_timestamp() order by worker_id`,
          [],
        )
      ).map(({ row }) => row);

    it('writes a row again only when it is due (B11)', async () => {
      const { known, directory } = server();
      known.heard('w', 'p');
      await directory.runOnce();
      const written = await rows();
      expect(written).to.have.length(1);
      known.open('WORK_STREAM', 'p', () => []).heard('w');
      await directory.runOnce();
      expect(await rows()).to.deep.equal(written);
      now += workerRefreshMs;
      await directory.runOnce();
      const [again] = await rows();
      expect(again).to.match(/^w 1 /).and.not.equal(written[0]);
    });

    it('writes nothing while it knows no worker', async () => {
      const { directory } = server();
      await directory.runOnce();
      const { database } = store;
      const statements: string[] = [];
      const query = database.query.bind(database);
      database.query = (text, ...rest) => {
        statements.push(text);
        return query(text, ...(rest as [readonly unknown[]]));
      };
      try {
        await directory.runOnce();
      } finally {
        database.query = query;
      }
      expect(statements).to.deep.equal([]);
    });

    it('writes thousands of workers, and removes them after their last call expires', async () => {
      const { known, directory } = server();
      for (let i = 0; i < 2_000; i++) known.heard(`w${i}`, 'p');
      await directory.runOnce();
      expect(await rows()).to.have.length(2_000);
      now += workerGoneMs;
      await directory.runOnce();
      const [count] = await store.database.query<{ n: number }>('select count(*)::int as n from workers', []);
      expect(count?.n).to.equal(0);
    });

    it('writes new workers and removes closed ones soon', async () => {
      const { known, directory } = server();
      directory.start();
      const stream = known.open('WORK_STREAM', 'p', () => []);
      stream.heard('w');
      await eventually('a row', async () => ((await rows()).length === 1 ? true : undefined));
      stream.close();
      await eventually('no row', async () => ((await rows()).length === 0 ? true : undefined));
    });

    it('removes the rows of a dead server, and keeps those of a live one', async () => {
      const dead = server();
      const alive = server();
      const third = server();
      dead.known.heard('w', 'p');
      alive.known.heard('w', 'p');
      await dead.directory.runOnce();
      await alive.directory.runOnce();
      await store.database.query(
        `update workers set expires_at = expires_at - $2::float8 * interval '1 ms' where server_id = $1`,
        [dead.directory.serverId, workerGoneMs],
      );
      await third.directory.runOnce();
      const left = await store.database.query('select server_id from workers', []);
      expect(left).to.deep.equal([{ server_id: alive.directory.serverId }]);
    });

    it('removes only its own rows when it stops', async () => {
      const [one, other] = [server(), server()];
      for (const { known, directory } of [one, other]) {
        known.heard('w', 'p');
        await directory.runOnce();
      }
      await one.directory.stop();
      const left = await store.database.query('select server_id from workers', []);
      expect(left).to.deep.equal([{ server_id: other.directory.serverId }]);
    });

    it('logs a failed write once, and continues when writing works again', async () => {
      const lines: string[] = [];
      const { known, directory } = server(lines);
      await store.database.query('alter table workers rename to hidden', []);
      const warned = () => lines.filter((line) => line.includes('failed to write the list of workers'));
      try {
        directory.start();
        known.heard('a', 'p');
        await eventually('a warning', async () => (warned().length > 0 ? true : undefined));
        known.heard('b', 'p');
        await eventually('a second round', async () => (directory.failures > 1 ? true : undefined));
        expect(warned()).to.have.length(1);
      } finally {
        await store.database.query('alter table hidden rename to workers', []);
      }
      known.heard('c', 'p');
      await eventually('all rows', async () => ((await rows()).length === 3 ? true : undefined));
    });
  });
});
