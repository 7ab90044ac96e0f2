import { expect } from 'chai';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import { newId } from '../../../../src/lib/uuid.ts';
import type { Sql } from '../../../../src/store/connection/sql.ts';
import type { Database } from '../../../../src/store/database.ts';
import { addMessages } from '../../../../src/store/sql/streams/messages.ts';
import {
  addMissingMessages,
  claimUnsentMessages,
  databaseName,
  deleteLostMessages,
  inspectMessages,
  nowhere,
  queueStart,
  readMessages,
  recordMessages,
  removeStaleMessages,
} from '../../../../src/store/sql/streams/outbox.ts';
import { onEveryEngine, type TestDatabase } from '../../../support/engines.ts';
import { engineOn, submittedIds } from '../../../support/jobs.ts';

const jobs = 10_000;
const slice = 100;

/** Number of rows that a statement touches in the tables that grow. */
async function touched(database: Database, work: (sql: Sql) => Promise<unknown>): Promise<number> {
  return database.transaction(async (sql) => {
    const count = async () => {
      const [row] = await sql.query<{ n: number }>(
        `select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int as n
        from pg_stat_xact_user_tables where relname in ('live_jobs', 'stream_messages')`,
        [],
      );
      return row?.n ?? 0;
    };
    const before = await count();
    await work(sql);
    return (await count()) - before;
  });
}

describe('statements of the outbox', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let database: Database;
    before(async () => {
      store = await kind.open();
      database = store.database;
    });
    after(() => store.close());

    it("touches few rows whatever the planner's statistics say", async function () {
      this.timeout(60_000);
      await database.query('analyze live_jobs, stream_messages', []);
      const engine = engineOn(database);
      const drafts = Array.from({ length: jobs }, (_, i) =>
        draft(
          { addon_id: 'a', job_type: 't', cost_units: 1, stream: i % 2 === 0 ? 's' : null },
          false,
          engine.settings,
        ),
      );
      const ids = await submittedIds(engine, drafts);
      await engine.stop();
      await database.query('delete from stream_messages', []);
      await addMessages(database, ids);

      const looksAtLittle = async (when: string) => {
        // Often enough that PostgreSQL switches to generic plans.
        for (let turn = 0; turn < 7; turn++) {
          const few = ids.slice(turn * slice, (turn + 1) * slice);
          const messages = few.map((jobId) => ({ jobId, stream: 's', attempt: 1, messageId: '1-1' }));
          const statements: [string, (sql: Sql) => Promise<unknown>][] = [
            ['record', (sql) => recordMessages(sql, messages)],
            ['read', (sql) => readMessages(sql, few)],
            ['take', (sql) => claimUnsentMessages(sql, slice, 0)],
            ['add', (sql) => addMissingMessages(sql, queueStart, slice)],
            ['look', (sql) => inspectMessages(sql, few[0] ?? nowhere, slice)],
          ];
          for (const [name, statement] of statements) {
            expect(await touched(database, statement), `${name} ${when}`).to.be.below(10 * slice);
          }
        }
      };
      await looksAtLittle('after an analysis of nothing');
      await database.query('analyze live_jobs, stream_messages', []);
      await looksAtLittle('after an analysis of all');
    });

    it('records each message once, and returns the id that counts', async () => {
      const [{ jobId } = { jobId: '' }] = (await inspectMessages(database, nowhere, 1)).found;
      await database.query('update stream_messages set message_id = null where job_id = $1', [jobId]);
      const message = { jobId, stream: 's', attempt: 1, messageId: '5-1' };
      const unknown = { ...message, jobId: newId() };
      const record = () =>
        recordMessages(database, [
          message,
          { ...message, messageId: '5-2' },
          { ...message, attempt: 2 },
          unknown,
        ]);
      const [first, second, ...others] = await record();
      expect(first).to.deep.equal(second);
      expect(others).to.deep.equal(['ended', 'ended']);
      expect(await record()).to.deep.equal([first, first, 'ended', 'ended']);
    });

    it('never waits for a locked row', async () => {
      if (kind.name === 'embedded') return;
      const [row] = (await inspectMessages(database, nowhere, 1)).found;
      if (!row) throw new Error('there is no message');
      await database.query('update stream_messages set message_id = null where job_id = $1', [row.jobId]);
      await database.transaction(async (sql) => {
        await sql.query('select from stream_messages where job_id = $1 for update', [row.jobId]);
        expect(await recordMessages(database, [{ ...row, messageId: '9-9' }])).to.deep.equal(['locked']);
        expect(await claimUnsentMessages(database, jobs, 0)).to.not.deep.include({
          jobId: row.jobId,
          stream: row.stream,
          attempt: row.attempt,
        });
        const seen = { ...row, messageId: null };
        expect(await removeStaleMessages(database, [seen])).to.deep.equal([]);
        expect(await deleteLostMessages(database, [seen])).to.deep.equal([]);
      });
    });

    it('names each database differently', async () => {
      const other = await kind.open();
      try {
        expect(await databaseName(database)).to.match(/^[0-9a-f-]{36}-\d+$/);
        if (kind.name === 'postgresql')
          expect(await databaseName(database)).to.not.equal(await databaseName(other.database));
      } finally {
        await other.close();
      }
    });
  });
});
