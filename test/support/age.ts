/** How tests of what is kept for days move the clock: what is stored gets older, and the settings stay what they are. */
import type { Database } from '../../src/store/database.ts';

const dayMs = 86_400_000;

/** An id of version 7, had it been made $1 milliseconds earlier. */
export const older = (id: string): string =>
  `(lpad(to_hex(('x' || left(replace(${id}::text, '-', ''), 12))::bit(48)::bigint - $1::bigint), 12, '0')
  || substr(replace(${id}::text, '-', ''), 13))::uuid`;

const columns: Record<string, readonly string[]> = {
  jobs: ['created_at'],
  job_outcomes: ['finished_at', 'started_at', 'last_heartbeat_at', 'expires_at', 'longest_silence_since'],
  leases: ['granted_at', 'last_heartbeat_at', 'expires_at', 'ended_at', 'longest_silence_since'],
  job_events: ['at', 'expires_at'],
  live_jobs: [],
};

/** Makes these jobs so many days older, with all that is told of them, and answers with their ids as they are then. */
export async function letJobsAge(
  database: Database,
  jobIds: readonly string[],
  days: number,
): Promise<string[]> {
  return database.transaction(async (sql) => {
    for (const [table, times] of Object.entries(columns)) {
      const set = times.map((time) => `${time} = ${time} - $1::bigint * interval '1 ms'`);
      await sql.query(
        `update ${table} set ${[`job_id = ${older('job_id')}`, ...set].join(', ')} where job_id = any ($2::uuid[])`,
        [days * dayMs, jobIds],
      );
    }
    const rows = await sql.query<{ id: string }>(
      `select ${older('id')} as id from unnest($2::uuid[]) with ordinality as given (id, n) order by n`,
      [days * dayMs, jobIds],
    );
    return rows.map(({ id }) => id);
  });
}

/** Takes the end of these jobs so many days back, and nothing else. */
export async function letEndsAge(database: Database, jobIds: readonly string[], days: number): Promise<void> {
  await database.query(
    `update job_outcomes set finished_at = finished_at - $1::float8 * interval '1 day' where job_id = any ($2::uuid[])`,
    [days, jobIds],
  );
}

/** Copies finished jobs with their leases: `count` of each, each a millisecond older than the one before. */
export async function multiplyEnded(database: Database, count: number): Promise<void> {
  const id = older('original.job_id').replace('$1', 'n');
  const copies: Record<string, string> = {
    jobs: '',
    job_outcomes: ", 'lease_id', gen_random_uuid()",
    leases: ", 'lease_id', gen_random_uuid()",
  };
  for (const [table, more] of Object.entries(copies))
    await database.query(
      `insert into ${table} select (copy.row).* from ${table} original, lateral (
        select jsonb_populate_record(original, jsonb_build_object('job_id', ${id}${more})) as row
        from generate_series(1, $1::int) as n offset 0
      ) copy`,
      [count],
    );
}
