import { expect } from 'chai';
import { fileReleaseOf } from '../../../../src/domain/requests/files.ts';
import type { EntitySql } from '../../../../src/store/connection/sql.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import {
  closeContentions,
  contentionsOfOwners,
  readContentions,
} from '../../../../src/store/sql/files/contentions.ts';
import { eventHorizon, followFileEvents } from '../../../../src/store/sql/files/events.ts';
import { extendOwners } from '../../../../src/store/sql/files/extend-owners.ts';
import { listFileLeases } from '../../../../src/store/sql/files/find.ts';
import { lockDueOwners, lockOwners } from '../../../../src/store/sql/files/owners.ts';
import { readHolders } from '../../../../src/store/sql/files/read-holders.ts';
import { endFiles, filesOfOwners, lockFreeFiles } from '../../../../src/store/sql/files/rows.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { acquireFiles, beatOwner, granted, repository } from '../../../support/file-lease-helpers.ts';
import { caller, engineOn, type TestedEngine } from '../../../support/jobs.ts';
import { eventually } from '../../../support/server.ts';
import { sessionsOver } from '../../../support/sessions.ts';

onEveryEngine((kind) => {
  describe('plans of file lease statements', () => {
    const files = 5_000;
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    /** Number of file rows that a statement touches. Its changes are rolled back. */
    async function touched(work: (sql: EntitySql) => Promise<unknown>): Promise<number> {
      let rows = -1;
      const undo = new Error('undone');
      await store.database
        .transaction(async (sql) => {
          const count = async () => {
            const [row] = await sql.query<{ n: number }>(
              `select sum(coalesce(seq_tup_read + idx_tup_fetch, 0))::int as n
              from pg_stat_xact_user_tables where relname like 'file\\_%'`,
              [],
            );
            return row?.n ?? 0;
          };
          const before = await count();
          await work(sql);
          rows = (await count()) - before;
          throw undo;
        })
        .catch((error: unknown) => {
          if (error !== undo) throw error;
        });
      return rows;
    }

    async function staysBounded(when: string): Promise<void> {
      const rows = await store.database.query<{ file_id: string; owner_id: string }>(
        'select file_id, owner_id from file_leases where state = 0 order by fence limit 10',
        [],
      );
      const pairs = rows.map(({ file_id, owner_id }) => ({ fileId: file_id, ownerId: owner_id }));
      const ids = pairs.map(({ fileId }) => fileId);
      const owners = [...new Set(pairs.map(({ ownerId }) => ownerId))];
      const contentions = await store.database.query<{ contention_id: string; file_id: string }>(
        'select contention_id, file_id from file_contentions where closed_at is null limit 10',
        [],
      );
      const contentionIds = contentions.map(({ contention_id }) => contention_id);
      const closings = contentions.map(({ contention_id, file_id }) => ({
        contentionId: contention_id,
        fileId: file_id,
        state: 'LAPSED' as const,
      }));
      const ownerBeats = owners.map((ownerId) => ({ ownerId, holder: null }));
      const nowMs = Date.now();
      const ends = pairs.map((pair) => ({ ...pair, state: 'RELEASED', reason: 'r' }) as const);
      const statements: Record<string, (sql: EntitySql) => Promise<unknown>> = {
        'locking owners': (sql) => lockOwners(sql, owners, { wait: true }),
        'keeping owners': (sql) => extendOwners(sql, ownerBeats, { wait: false }),
        'looking at files': (sql) =>
          readHolders(
            sql,
            pairs.map(({ fileId, ownerId }) => ({ fileId, callerId: ownerId })),
          ),
        'locking free files': (sql) => lockFreeFiles(sql, ids, { wait: false }),
        'ending leases': (sql) => endFiles(sql, ends, nowMs),
        'reading contentions': (sql) => readContentions(sql, contentionIds),
        'closing contentions': (sql) => closeContentions(sql, closings, nowMs),
        'contentions of owners': (sql) => contentionsOfOwners(sql, ['waiter-1']),
        'files of an owner': (sql) => filesOfOwners(sql, ['few']),
        'what is due': (sql) => lockDueOwners(sql, 100),
        'a page of leases': (sql) =>
          listFileLeases(sql, { repository, ownerId: null, cursor: null, limit: 10 }),
        'new events': async (sql) =>
          followFileEvents(sql, await eventHorizon(sql), { repository: null, ownerId: null }, 200),
      };
      for (const [name, work] of Object.entries(statements))
        expect(await touched(work), `${name} ${when}`).to.be.below(120);
    }

    it("touches few rows whatever the planner's statistics say", async function () {
      this.timeout(60_000);
      for (const table of ['file_leases', 'file_owners', 'file_contentions', 'file_events'])
        await store.database.query(`analyze ${table}`, []);
      const all = Array.from({ length: files }, (_, i) => `f${i}`);
      await granted(engine, 'few', 'few-1', 'few-2');
      await granted(engine, 'many', ...all);
      await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          acquireFiles(engine, `waiter-${i}`, ...all.slice(i * 20, i * 20 + 20)),
        ),
      );
      await Promise.all(Array.from({ length: 500 }, (_, i) => granted(engine, `other-${i}`, `other/${i}`)));
      await staysBounded('after an ANALYZE of empty tables');
      for (const table of ['file_leases', 'file_owners', 'file_contentions', 'file_events'])
        await store.database.query(`analyze ${table}`, []);
      await staysBounded('after an ANALYZE with everything held');
      const release = fileReleaseOf({ owner_id: 'many', repository: '*', reason: 'ENDED' });
      await engine.files.release(release, caller);
      await granted(engine, 'many', ...all.slice(0, 10));
      await store.database.query('analyze file_leases', []);
      await engine.files.release(release, caller);
      await granted(engine, 'many', ...all);
      await staysBounded('after an ANALYZE with nearly everything free');
    });

    if (kind.name !== 'postgresql') return;
    it("writes no index for an owner's heartbeat: every one is a HOT update", async () => {
      const [owners, rounds] = [100, 20];
      // A store of its own, because connections report their writes to the statistics with a delay.
      await using own = await kind.open();
      const updates = (atLeast: number) =>
        eventually(`${atLeast} updates have been told of`, async () => {
          const [row] = await own.database.query<{ all: number; hot: number }>(
            `select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_user_tables
            where relname = 'file_owners'`,
            [],
          );
          return row && row.all >= atLeast ? row : undefined;
        });
      /** Runs work on a server that then closes, so that its connections report their statistics. */
      const during = (work: (server: TestedEngine) => Promise<unknown>) =>
        sessionsOver(own.database, async () => {
          // Marks a server as alive for the whole test, so that no outage is compensated.
          await own.database.query("update pulse set alive_at = clock_timestamp() + interval '1 hour'", []);
          const database = await openDatabase(own.options);
          const server = engineOn(database);
          await work(server);
          await server.stop();
          await database.close();
        });
      const names = Array.from({ length: owners }, (_, i) => `hot-${i}`);
      await during(async (server) => {
        await Promise.all(names.map((name) => granted(server, name, `hot/${name}`)));
        for (let round = 0; round < 4; round++)
          await Promise.all(names.map((name) => beatOwner(server, name)));
      });
      const before = await updates(5 * owners);
      await during(async (server) => {
        for (let round = 0; round < rounds; round++)
          for (const verdict of await Promise.all(names.map((name) => beatOwner(server, name))))
            expect(verdict).to.equal('extended');
      });
      const after = await updates(before.all + owners * rounds);
      expect(after.all - before.all).to.equal(owners * rounds);
      expect(after.hot - before.hot).to.equal(owners * rounds);
    });
  });
});
