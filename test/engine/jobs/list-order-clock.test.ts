/**
 * The guarantee: jobs of one microsecond are listed in the order of submission, also across batches. Batches
 * that two servers write at the same time are listed one after the other, each in its own order.
 */
import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import type { Database } from '../../../src/store/database.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine, type TestStore } from '../../support/engines.ts';
import { caller, engineOn, submittedIds, type TestedEngine } from '../../support/jobs.ts';

const addon_id = 'a';

onEveryEngine((kind) => {
  describe('the list of jobs with a stopped clock (B7)', () => {
    let store: TestStore;
    let database: Database;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.create();
      // Sessions with this search path find this clock before PostgreSQL's own.
      const path = 'frozen,pg_catalog,public';
      const { url } = store.options;
      const at = url === undefined ? {} : { url: `${url}?options=-csearch_path%3D${path}` };
      database = await openDatabase({ ...store.options, ...at });
      await database.query('create schema frozen', []);
      await database.query(
        `create function frozen.clock_timestamp() returns timestamptz language sql stable
        as $$ select '2030-01-02 03:04:05.678901Z'::timestamptz $$`,
        [],
      );
      // The embedded engine has one session.
      if (url === undefined) await database.query(`set search_path = ${path}`, []);
      engine = engineOn(database);
    });
    afterEach(async () => {
      await engine.stop();
      await database.close();
      await store.remove();
    });

    let keys = 0;
    const batch = (on: TestedEngine, count: number, keyed = false) =>
      submittedIds(
        on,
        Array.from({ length: count }, () =>
          draft(
            { addon_id, job_type: 't', cost_units: 1, ...(keyed && { client_request_id: `${keys++}` }) },
            false,
            on.settings,
          ),
        ),
      );
    /** Lists all jobs in small pages. */
    const listed = async (oldest_first: boolean, between = async () => {}): Promise<string[]> => {
      const ids: string[] = [];
      let cursor: string | null = null;
      do {
        const page: { items: { jobId: string }[]; nextCursor: string | null } = await engine.jobs.list(
          { addon_id, oldest_first, limit: 7, ...(cursor === null ? {} : { cursor }) },
          caller,
        );
        ids.push(...page.items.map(({ jobId }) => jobId));
        cursor = page.nextCursor;
        await between();
      } while (cursor !== null);
      return ids;
    };

    const times = async () =>
      (await database.query<{ n: number }>('select count(distinct created_at)::int as n from jobs', []))[0]
        ?.n;

    it('lists in the order of submission across batches, with and without keys', async () => {
      const ids: string[] = [];
      for (let i = 0; i < 12; i++) ids.push(...(await batch(engine, 1 + (i % 4), i % 2 === 1)));
      expect(await times()).to.equal(1);
      expect(await listed(true)).to.deep.equal(ids);
      expect(await listed(false)).to.deep.equal(ids.toReversed());
    });

    it('keeps batches together and in order when two servers submit at the same time', async () => {
      const other = engineOn(database);
      const rounds: string[][][] = [];
      try {
        for (let round = 0; round < 10; round++) {
          const servers = [engine, other, engine, other];
          rounds.push(await Promise.all(servers.map((server, i) => batch(server, 5, i < 2))));
        }
      } finally {
        await other.stop();
      }
      expect(await times()).to.equal(1);
      const ids = await listed(true);
      // All batches of a round started before any was answered, so they may be in any order.
      const expected = rounds.flatMap((batches) =>
        batches.toSorted((a, b) => ids.indexOf(a[0] ?? '') - ids.indexOf(b[0] ?? '')),
      );
      expect(ids).to.deep.equal(expected.flat());
    });

    it('neither loses nor repeats a job across pages while simultaneous jobs arrive', async () => {
      const ids: string[] = [];
      for (let i = 0; i < 10; i++) ids.push(...(await batch(engine, 3)));
      const newestFirst = await listed(false, async () => {
        await batch(engine, 2);
      });
      expect(newestFirst).to.deep.equal(ids.toReversed());
    });
  });
});
