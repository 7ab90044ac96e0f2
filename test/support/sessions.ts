/** Sessions of a test's own PostgreSQL, for tests that read what sessions tell only as they end. */
import type { Database } from '../../src/store/database.ts';
import { eventually } from './server.ts';

/** Runs `work`, and waits until every session that was begun meanwhile has ended: closing a pool does not wait for that. */
export async function sessionsOver<T>(database: Database, work: () => Promise<T>): Promise<T> {
  const [before] = await database.query<{ now: string }>('select clock_timestamp()::text as now', []);
  const answer = await work();
  await eventually('its sessions have ended', async () => {
    const [row] = await database.query<{ open: number }>(
      `select count(*)::int as open from pg_stat_activity where datname = current_database()
        and backend_start > $1::timestamptz and pid <> pg_backend_pid()`,
      [before?.now],
    );
    return row?.open === 0 ? true : undefined;
  });
  return answer;
}
