import type { EntitySql } from '../../src/store/connection/sql.ts';
import type { Database } from '../../src/store/database.ts';

type Work = (sql: EntitySql) => Promise<unknown>;

/** How many rows a statement laid hands on, live rows of jobs unless told otherwise, by the counters of its own transaction. */
export const rowsTouched = (
  database: Database,
  work: Work,
  tables: readonly string[] = ['live_jobs'],
): Promise<number> =>
  counted(
    database,
    work,
    `select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::int as n
    from pg_stat_xact_user_tables, unnest($1::text[]) as name
    where relname = name or relname like replace(name, '_', '\\_') || '\\_%'`,
    [tables],
  );

/** How many pages of live jobs and of their indexes it looked at: dead rows are no rows that it touched, but lie in them. */
export const pagesTouched = (database: Database, work: Work): Promise<number> =>
  counted(
    database,
    work,
    `select sum(pg_stat_get_xact_blocks_fetched(relation))::int as n from (
      select 'live_jobs'::regclass as relation
      union all select indexrelid from pg_index where indrelid = 'live_jobs'::regclass
    ) relations`,
    [],
  );

const counted = (database: Database, work: Work, query: string, params: readonly unknown[]) =>
  database.transaction(async (sql) => {
    const count = async () => {
      const [row] = await sql.query<{ n: number }>(query, params);
      return row?.n ?? 0;
    };
    const before = await count();
    await work(sql);
    return (await count()) - before;
  });
