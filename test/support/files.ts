/** How tests move the clock of file leases: what is stored gets older, and the constants stay what they are. */
import type { Database } from '../../src/store/database.ts';

const times: Record<string, readonly string[]> = {
  file_owners: [
    'born_at',
    'last_heartbeat_at',
    'last_activity_at',
    'expires_at',
    'stopped_at',
    'idle_at',
    'ended_at',
    'check_at',
  ],
  file_leases: ['acquired_at', 'ended_at', 'lent_at'],
  file_contentions: [
    'denied_at',
    'retry_at',
    'retried_at',
    'halted_at',
    'closed_at',
    'blocker_acquired_at',
    'blocker_now_acquired_at',
    'instructed_at',
    'check_at',
  ],
  file_losses: ['lost_at'],
  file_events: ['at'],
};

/** Makes everything that is stored a given time older, as if that time had passed, in one step for all who look. */
export async function letFilesAge(database: Database, ms: number): Promise<void> {
  await database.transaction(async (sql) => {
    // Those who write wait, so that nothing is half as old as the rest.
    await sql.query(`lock table ${Object.keys(times).join(', ')} in exclusive mode`, []);
    for (const [table, columns] of Object.entries(times)) {
      const older = columns.map((column) => `${column} = ${column} - $1::float8 * interval '1 ms'`);
      await sql.query(`update ${table} set ${older.join(', ')}`, [ms]);
    }
  });
}

/** The same while servers were alive. */
export async function letFileTimePass(database: Database, ms: number): Promise<void> {
  await database.query('update pulse set alive_at = clock_timestamp()', []);
  await letFilesAge(database, ms);
}
