import type { Database } from '../../src/store/database.ts';
import type { Sql } from '../../src/store/sql.ts';

/** How many rows of a table a statement laid hands on, those of live jobs unless another is named, by the counters of its own transaction. */
export async function rowsTouched(
  database: Database,
  work: (sql: Sql) => Promise<unknown>,
  table = 'live_jobs',
): Promise<number> {
  return database.transaction(async (sql) => {
    const count = async () => {
      const [row] = await sql.query<{ n: number }>(
        `select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int as n
        from pg_stat_xact_user_tables where relname = $1 or relname like $1 || '\\_%'`,
        [table],
      );
      return row?.n ?? 0;
    };
    const before = await count();
    await work(sql);
    return (await count()) - before;
  });
}
