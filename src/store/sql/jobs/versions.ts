import { sql as raw } from 'kysely';
import type { EntitySql } from '../../connection/sql.ts';
import { select } from '../../schema/tables.ts';

/**
 * The version of each of these jobs that is unfinished: it differs after every change of the job's live row.
 * A job that has ended or does not exist has none.
 */
export async function liveVersions(
  sql: EntitySql,
  jobIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, string>> {
  const rows = await select(
    sql,
    (tables) =>
      tables
        .selectFrom('live_jobs')
        .select(['job_id', raw<string>`xmin::text || '.' || ctid::text`.as('version')])
        .where('job_id', '=', raw<string>`any(${raw.val(jobIds)}::uuid[])`),
    signal,
  );
  return new Map(rows.map(({ job_id, version }) => [job_id, version]));
}
