/**
 * Hot statements are planned once, and whoever plans one may see a table just as it is empty: after an ANALYZE at such a moment a
 * plan that reads all of a table is thought to be as good as one that looks rows up by their key, and is kept while the
 * table grows.
 */
import { readdirSync } from 'node:fs';
import { expect } from 'chai';
import type { Database } from '../../src/store/database.ts';
import { hotStatements } from '../../src/store/prepared.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';

/** Tables that are emptied again and again; all of their keys have to be answered by the index that begins with them. */
const emptied = new Set(['live_jobs', 'stream_messages', 'stat_tallies']);

/** What is there to be gone through: all owners that live, after an outage, and one row for each submitter. */
const walked = new Set(['file_owners_due', 'stat_totals_pkey']);

/** Tables that never have more than a handful of rows. */
const small = new Set(['capacity', 'pulse', 'outages', 'identity', 'job_seq', 'stat_marks', 'prune_walks']);

interface Node {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'TID Cond'?: string;
  Filter?: string;
  Plans?: Node[];
}

/** What a plan reads from one end to the other: neither by a key nor, up to a limit, in the order of an index. */
function readWhole(firstColumns: ReadonlyMap<string, string>, node: Node, parent?: Node): string[] {
  const { 'Relation Name': table, 'Index Name': index = '', 'Index Cond': condition, Filter: filter } = node;
  const isScan = node['Node Type'].includes('Scan') && table !== undefined && !small.has(table);
  const first = emptied.has(table ?? '') ? firstColumns.get(index) : undefined;
  const isByKey =
    node['TID Cond'] !== undefined || (condition !== undefined && (!first || condition.includes(first)));
  const isInOrder = parent?.['Node Type'] === 'Limit' && index !== '' && !filter;
  // Of what is never empty again, one index may be taken for another, whose order is the same.
  const isFine =
    isByKey || isInOrder || walked.has(index) || (filter !== undefined && !emptied.has(table ?? ''));
  const own = isScan && !isFine ? [`${table} by ${index}, ${condition ?? filter}`] : [];
  return [...own, ...(node.Plans ?? []).flatMap((child) => readWhole(firstColumns, child, node))];
}

async function plan(database: Database, text: string): Promise<Node> {
  const params = Math.max(0, ...Array.from(text.matchAll(/\$(\d+)/g), ([, n]) => Number(n)));
  const given = params === 0 ? '' : `(${new Array(params).fill('null').join(', ')})`;
  return database.transaction(async (sql) => {
    await sql.query(`prepare looked_at as ${text}`, []);
    type Row = { 'QUERY PLAN': [{ Plan: Node }] };
    const [row] = await sql.query<Row>(`explain (format json, costs off) execute looked_at ${given}`, []);
    await sql.query('deallocate looked_at', []);
    if (!row) throw new Error('there is no plan');
    return row['QUERY PLAN'][0].Plan;
  });
}

describe('the plans of hot statements that are made while there is nothing', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let firstColumns: Map<string, string>;
    before(async () => {
      store = await kind.open();
      await store.database.query('analyze', []);
      const rows = await store.database.query<{ name: string; first: string }>(
        `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid, 1, false) as first from pg_index`,
        [],
      );
      firstColumns = new Map(rows.map(({ name, first }) => [name, first]));
      const folder = new URL('../../src/store/statements/', import.meta.url);
      for (const file of readdirSync(folder)) await import(new URL(file, folder).href);
    });
    after(() => store.close());

    it('find rows by their keys', async function () {
      this.timeout(60_000);
      let found = '';
      for (const text of hotStatements()) {
        const whole = readWhole(firstColumns, await plan(store.database, text));
        if (whole.length > 0)
          found += `${text.trim().replaceAll(/\s+/g, ' ').slice(0, 120)}: ${whole.join('; ')}\n`;
      }
      expect(found).to.equal('');
    });
  });
});
