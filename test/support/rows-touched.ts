import type { Database } from '../../src/store/database.ts';
import type { Sql } from '../../src/store/sql.ts';

/** How many rows a statement laid hands on, live rows of jobs unless told otherwise, by the counters of its own transaction. */
export async function rowsTouched(
  database: Database,
  work: (sql: Sql) => Promise<unknown>,
  tables: readonly string[] = ['live_jobs'],
): Promise<number> {
  return database.transaction(async (sql) => {
    const count = async () => {
      const [row] = await sql.query<{ n: number }>(
        `select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::int as n
        from pg_stat_xact_user_tables, unnest($1::text[]) as name
        where relname = name or relname like replace(name, '_', '\\_') || '\\_%'`,
        [tables],
      );
      return row?.n ?? 0;
    };
    const before = await count();
    await work(sql);
    return (await count()) - before;
  });
}
