import type { JobWithResult } from '../../../domain/jobs/job.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { textArray } from '../array-params.ts';
import { type EndedRecord, jobColumns, liveColumns, toJobWithResult } from './record.ts';

/** The columns of an ended job beside its own row, from `outcome`. */
export const outcomeColumns = `outcome.state, null::timestamptz as check_at, outcome.attempts,
  outcome.claimed_by, null::timestamptz as claim_expires_at, outcome.lease_id, outcome.cancel_requested,
    outcome.progress, outcome.note, outcome.finished_at as updated_at, outcome.dead_stream is not null
      as dead_lettered, outcome.started_at,
        outcome.error_text, outcome.error_detail, outcome.result, outcome.metrics`;

const noOutcome = `null::timestamptz as started_at, null as error_text, null::jsonb as error_detail,
  null::jsonb as result, null::jsonb as metrics`;

/** One statement reads both tables: a job that ends in between would otherwise be in neither. */
const read = preparedStatement(
  ['jobIds'],
  `
select ${jobColumns('job')}, ${liveColumns('live')}, ${noOutcome}
from live_jobs live cross join ${lateralByKey('jobs', 'job_id', 'live.job_id')} job
where live.job_id = any (@jobIds::uuid[])
union all
select ${jobColumns('job')}, ${outcomeColumns}
from job_outcomes outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
where outcome.job_id = any (@jobIds::uuid[])`,
);

/** The jobs with these ids that exist, in no order. */
export async function readJobs(
  sql: Sql,
  jobIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, JobWithResult>> {
  if (jobIds.length === 0) return new Map();
  const rows = await read.query<EndedRecord>(sql, { jobIds: textArray(jobIds) }, signal);
  return new Map(rows.map((row) => [row.job_id, toJobWithResult(row)]));
}
