import type { SubmittedFields } from '../../../domain/jobs/job-fields.ts';
import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import { lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement, statement } from '../../connection/statement.ts';
import {
  booleanArray,
  columnsOf,
  firstOrOwn,
  jsonArray,
  nullIfAllNull,
  numberArray,
  sendOnceIfConstant,
  textArray,
} from '../array-params.ts';
import type { LaneTarget } from '../queue/lanes.ts';
import { tally } from '../stats/tallies.ts';
import { idPrefix, idSuffixes } from './ids.ts';

/** A job to be written. JSON comes as text: the database parses it once. */
export interface NewJob extends Omit<SubmittedFields, 'priority' | 'constraints' | 'payload'> {
  priority: number;
  constraints: string;
  payload: string;
  /** Size of `constraints` and `payload`. */
  bytes: number;
}

export interface SubmittedJobs {
  kind: 'submitted';
  createdAtMs: number;
  /**
   * The id of each job, in the order given; null if its `client_request_id` was taken and it was not written.
   */
  jobIds: (string | null)[];
}

/** The keys of the jobs of a crowded lane; see `store/sql/queue/crowds.ts`. */
export const crowdColumns = 'crowd, crowd_type, crowd_addon, crowd_both';

const crowdOf = (isCrowded: boolean): string => (isCrowded ? `, ${crowdColumns}` : '');

const constantOrOwn = (column: string, array: string): string => `${firstOrOwn(column, array)} as ${column}`;

// One statement writes a whole batch: the jobs, their live rows and their tallies. A job's `seq` is the id of
// its submission event, which the job's own row records; see `store/sql/events/record.ts`. Everything after
// the first insert uses its `returning`; joining the parameters again would compare every job with every
// other.
//
// The statement locks the lanes first. A lane that was removed meanwhile has no row to lock, and then nothing
// is written. A locked lane stays until its new jobs are committed, because removing a lane takes a lock that
// this one excludes. The order of these locks does not matter: submissions do not exclude each other, and the
// sweep waits for no row.
const submit = (isCrowded: boolean, order: string, onConflict: string, answer: string) =>
  preparedStatement(
    [
      'suffixes',
      'laneIds',
      'addonIds',
      'jobTypes',
      'streams',
      'priorities',
      'costs',
      'constraints',
      'payloads',
      'clientRequestIds',
      'uniques',
      'tags',
      'maxRuntimes',
      'maxAttempts',
      'retryBackoffs',
      'runAts',
      'bytes',
      'keepsMessages',
      'laneCount',
    ],
    `
with locked_lane as materialized (
  select lane_id from lanes where lane_id = any (@laneIds::int[]) for key share
), clock as materialized (
  select now, ${idPrefix} as prefix from (select clock_timestamp() as now) as clock
  where (select count(*) from locked_lane) = @laneCount::int
), numbered as (
  select (prefix || suffix)::uuid as job_id, ${constantOrOwn('lane_id', '@laneIds::int[]')},
    ${constantOrOwn('addon_id', '@addonIds::text[]')},
    ${constantOrOwn('job_type', '@jobTypes::text[]')}, stream,
      ${constantOrOwn('priority', '@priorities::smallint[]')},
    ${constantOrOwn('cost_units', '@costs::int[]')}, coalesce(constraints, @constraints::jsonb -> 0)
      as constraints, payload,
    client_request_id, ${constantOrOwn('is_unique', '@uniques::boolean[]')}, tags, max_runtime_s,
    ${constantOrOwn('max_attempts', '@maxAttempts::int[]')},
      ${constantOrOwn('retry_backoff_s', '@retryBackoffs::int[]')}, run_at, bytes,
    nextval('job_events_event_id_seq') as seq, now
  from clock, rows from (
    unnest(@suffixes::text[], @laneIds::int[], @addonIds::text[], @jobTypes::text[], @streams::text[],
      @priorities::smallint[], @costs::int[], @clientRequestIds::text[],
      @uniques::boolean[], @tags::text[], @maxRuntimes::int[], @maxAttempts::int[], @retryBackoffs::int[],
        @runAts::float8[], @bytes::int[]),
    jsonb_array_elements(@constraints::jsonb), jsonb_array_elements(@payloads::jsonb)
  ) as new (suffix, lane_id, addon_id, job_type, stream, priority, cost_units, client_request_id, is_unique,
    tags, max_runtime_s, max_attempts, retry_backoff_s, run_at, bytes, constraints, payload)
), job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints,
    payload, client_request_id, is_unique, tags, max_runtime_s, max_attempts, retry_backoff_s, run_at, bytes,
    created_at)
  select job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints,
    payload, client_request_id, is_unique, coalesce(tags::text[], '{}'), max_runtime_s, max_attempts,
    retry_backoff_s, to_timestamp(run_at / 1000.0), bytes, now
  from numbered
  ${order}
  ${onConflict}
  returning job_id, seq, lane_id, stream, priority, cost_units, max_attempts, run_at, bytes, created_at
), live as (
  insert into live_jobs (job_id, seq, lane_id, priority, cost_units, bytes, state, check_at, attempts,
    attempts_limit, claims_lost, cancel_requested, updated_at, ready_at${crowdOf(isCrowded)})
  select job_id, seq, job.lane_id, job.priority, cost_units, bytes, ${stateNumber('QUEUED')},
    case when run_at > created_at then run_at end, 0, max_attempts, 0, false, created_at,
    greatest(run_at, created_at)${crowdOf(isCrowded)}
  from job ${isCrowded ? `cross join ${lateralByKey('lanes', 'lane_id', 'job.lane_id')} lane` : ''}
), enqueued as (
  insert into stream_messages (job_id, stream, attempt, written_at)
  select job_id, stream, 1, created_at from job where @keepsMessages::boolean and stream is not null
), tallied as (${tally('job', 'created_at', { queued: 'count(*)', submitted: 'count(*)' })}
)
${answer}`,
  );

const byPlace = (order: string, onConflict: string, answer: string) => ({
  own: submit(false, order, onConflict, answer),
  crowded: submit(true, order, onConflict, answer),
});

const submitPlain = byPlace('', '', 'select now, prefix, null as job_id from clock');
// Keys are inserted in one order, whatever the order of the jobs, so that two batches with the same keys
// cannot deadlock.
const submitKeyed = byPlace(
  'order by addon_id, client_request_id, seq',
  'on conflict (addon_id, client_request_id) where client_request_id is not null do nothing',
  'select created_at as now, null as prefix, job_id from job union all select now, prefix, null from clock',
);

/**
 * Writes the jobs that do not exist yet into their lanes, in the order given, and returns their ids. If
 * messages are kept, it also writes those of jobs with a stream. If a lane has been removed, it writes
 * nothing.
 */
export async function submitJobs(
  sql: Sql,
  jobs: readonly NewJob[],
  { places, keepsMessages }: { places: readonly LaneTarget[]; keepsMessages: boolean },
  signal?: AbortSignal,
): Promise<SubmittedJobs | { kind: 'lane removed' }> {
  const keyed = jobs.some((job) => job.clientRequestId !== null);
  const ofEach = columnsOf(jobs);
  const suffixes = idSuffixes(jobs.length);
  const laneIds = places.map(({ laneId }) => laneId);
  const isCrowded = places.some((place) => place.isCrowded);
  const rows = await (keyed ? submitKeyed : submitPlain)[isCrowded ? 'crowded' : 'own'].query<{
    now: string;
    prefix: string | null;
    job_id: string | null;
  }>(
    sql,
    {
      suffixes: textArray(suffixes),
      laneIds: sendOnceIfConstant(laneIds, numberArray),
      addonIds: sendOnceIfConstant(ofEach('addonId'), textArray),
      jobTypes: sendOnceIfConstant(ofEach('jobType'), textArray),
      streams: nullIfAllNull(ofEach('stream'), textArray),
      priorities: sendOnceIfConstant(ofEach('priority'), numberArray),
      costs: sendOnceIfConstant(ofEach('costUnits'), numberArray),
      constraints: sendOnceIfConstant(ofEach('constraints'), jsonArray),
      payloads: jsonArray(ofEach('payload')),
      clientRequestIds: keyed ? textArray(ofEach('clientRequestId')) : null,
      uniques: sendOnceIfConstant(ofEach('unique'), booleanArray),
      tags: nullIfAllNull(
        jobs.map(({ tags }) => (tags.length === 0 ? null : textArray(tags))),
        textArray,
      ),
      maxRuntimes: nullIfAllNull(ofEach('maxRuntimeS'), numberArray),
      maxAttempts: sendOnceIfConstant(ofEach('maxAttempts'), numberArray),
      retryBackoffs: sendOnceIfConstant(ofEach('retryBackoffS'), numberArray),
      runAts: nullIfAllNull(ofEach('runAtMs'), numberArray),
      bytes: numberArray(ofEach('bytes')),
      keepsMessages,
      laneCount: new Set(laneIds).size,
    },
    signal,
  );
  const last = rows.at(-1);
  if (!last) return { kind: 'lane removed' };
  const ids = suffixes.map((suffix) => `${last.prefix}${suffix}`);
  const createdAtMs = timeMs(last.now);
  if (!keyed) return { kind: 'submitted', createdAtMs, jobIds: ids };
  const written = new Set(rows.map(({ job_id }) => job_id));
  return { kind: 'submitted', createdAtMs, jobIds: ids.map((id) => (written.has(id) ? id : null)) };
}

export interface FirstJob {
  addonId: string;
  clientRequestId: string;
  jobId: string;
  createdAtMs: number;
}

const findFirst = statement(
  ['addonIds', 'clientRequestIds'],
  `
select job.addon_id as "addonId", job.client_request_id as "clientRequestId", job.job_id as "jobId",
  job.created_at as "createdAt"
from unnest(@addonIds::text[], @clientRequestIds::text[]) as wanted (addon_id, client_request_id)
join jobs job on job.addon_id = wanted.addon_id and job.client_request_id = wanted.client_request_id`,
);

/** The existing jobs with these keys: `addon_id` and `client_request_id`. */
export async function findByClientRequest(
  sql: Sql,
  keys: readonly { addonId: string; clientRequestId: string }[],
  signal?: AbortSignal,
): Promise<FirstJob[]> {
  const rows = await findFirst.query<Omit<FirstJob, 'createdAtMs'> & { createdAt: string }>(
    sql,
    {
      addonIds: textArray(keys.map((key) => key.addonId)),
      clientRequestIds: textArray(keys.map((key) => key.clientRequestId)),
    },
    signal,
  );
  return rows.map(({ createdAt, ...row }) => ({ ...row, createdAtMs: timeMs(createdAt) }));
}
