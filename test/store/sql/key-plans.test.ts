/**
 * Prepared statements are planned once, possibly while a table is empty. After an ANALYZE at such a moment,
 * the planner rates a scan of the whole table as good as a lookup by key, and keeps that plan while the table
 * grows.
 */
import { globSync } from 'node:fs';
import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { preparedStatements } from '../../../src/store/connection/prepared-client.ts';
import type { Sql } from '../../../src/store/connection/sql.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, engineSettings } from '../../support/jobs.ts';
import { acquired, releaseFor } from '../../support/lease-helpers.ts';

const jobs = 5_000;

/**
 * Tables that become empty again and again. All lookups by key must use the index that begins with the key.
 */
const emptied = ['live_jobs', 'stream_messages', 'stat_tallies'];
/** Tables that statements join with them. */
const others = ['jobs', 'job_outcomes', 'leases', 'lanes'];

/**
 * Rows that are scanned completely on purpose: all live owners after an outage, and one row for each
 * submitter.
 */
const walked = new Set(['file_owners_due', 'stat_totals_pkey']);

/** Two indexes have this order, on held files; a file keeps its row for ever. */
const alike = new Set(['file_leases_held']);

/** Tables that never have more than a handful of rows. */
const small = new Set([
  'capacity',
  'pulse',
  'outages',
  'identity',
  'job_events_event_id_seq',
  'stat_marks',
  'prune_walks',
]);

interface Node {
  'Node Type': string;
  'Plan Rows': number;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'TID Cond'?: string;
  Filter?: string;
  Plans?: Node[];
}

/** Tables that a plan reads completely: neither by a key nor, up to a limit, in the order of an index. */
function readWhole(firstColumns: ReadonlyMap<string, string>, node: Node, parent?: Node): string[] {
  const { 'Relation Name': table, 'Index Name': index = '', 'Index Cond': condition, Filter: filter } = node;
  const isScan = node['Node Type'].includes('Scan') && table !== undefined && !small.has(table);
  const first = emptied.includes(table ?? '') ? firstColumns.get(index) : undefined;
  const isByKey =
    node['TID Cond'] !== undefined || (condition !== undefined && (!first || condition.includes(first)));
  const isInOrder = parent?.['Node Type'] === 'Limit' && index !== '' && !filter;
  const isFine = isByKey || isInOrder || walked.has(index) || alike.has(index);
  const own = isScan && !isFine ? [`${table} by ${index}, ${condition ?? filter}`] : [];
  return [...own, ...(node.Plans ?? []).flatMap((child) => readWhole(firstColumns, child, node))];
}

/** The highest row estimate in any part of a plan. */
const rowsThought = (node: Node): number =>
  Math.max(node['Plan Rows'], ...(node.Plans ?? []).map((child) => rowsThought(child)));

async function plan(sql: Sql, text: string): Promise<Node> {
  const params = Math.max(0, ...Array.from(text.matchAll(/\$(\d+)/g), ([, n]) => Number(n)));
  const given = params === 0 ? '' : `(${new Array(params).fill('null').join(', ')})`;
  await sql.query(`prepare looked_at as ${text}`, []);
  type Row = { 'QUERY PLAN': [{ Plan: Node }] };
  const [row] = await sql.query<Row>(`explain (format json) execute looked_at ${given}`, []);
  await sql.query('deallocate looked_at', []);
  if (!row) throw new Error('there is no plan');
  return row['QUERY PLAN'][0].Plan;
}

describe('plans of prepared statements', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let firstColumns: Map<string, string>;
    before(async () => {
      store = await kind.open();
      const rows = await store.database.query<{ name: string; first: string }>(
        'select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid, 1, false) as first from pg_index',
        [],
      );
      firstColumns = new Map(rows.map(({ name, first }) => [name, first]));
      const folder = new URL('../../../src/store/sql/', import.meta.url);
      for (const file of globSync('**/*.ts', { cwd: folder })) await import(new URL(file, folder).href);
    });
    after(() => store.close());

    /** Statements that read a whole table, and those with row estimates far above the number of rows. */
    async function faults(sql: Sql): Promise<string> {
      let found = '';
      for (const text of preparedStatements()) {
        const node = await plan(sql, text);
        const problems = readWhole(firstColumns, node);
        if (rowsThought(node) > 2 * jobs) problems.push(`${rowsThought(node)} rows`);
        if (problems.length > 0)
          found += `${text.trim().replaceAll(/\s+/g, ' ').slice(0, 120)}: ${problems.join('; ')}\n`;
      }
      return found;
    }

    it('finds rows by key when all tables were empty', async function () {
      this.timeout(60_000);
      await store.database.query('analyze', []);
      expect(await store.database.transaction((sql) => faults(sql))).to.equal('');
    });

    it('finds rows by key when one table was empty, without excessive row estimates', async function () {
      this.timeout(120_000);
      const engine = engineOn(store.database, { ...engineSettings, capacityTotal: jobs });
      try {
        const command = { addon_id: 'a', job_type: 't', cost_units: 1 };
        const drafts = Array.from({ length: jobs }, (_, i) =>
          draft(i % 2 === 0 ? command : { ...command, stream: 's' }, false, engine.settings),
        );
        await engine.jobs.submitMany(drafts, caller);
        for (let i = 0; i < 20; i++)
          await engine.leases.release(releaseFor(await acquired(engine, `w${i}`)), caller);
      } finally {
        await engine.stop();
      }
      await store.database.query('analyze', []);
      expect(await store.database.transaction((sql) => faults(sql)), 'with all as they are').to.equal('');
      for (const table of [...emptied, ...others]) {
        const undone = new Error('undone');
        const trying = store.database.transaction(async (sql) => {
          await sql.query(`truncate ${table}`, []);
          await sql.query(`analyze ${table}`, []);
          expect(await faults(sql), `with no ${table}`).to.equal('');
          throw undone;
        });
        await trying.catch((error) => {
          if (error !== undone) throw error;
        });
      }
    });
  });
});
