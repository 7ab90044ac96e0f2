import type { SubmittedFields } from '../../../domain/jobs/job-fields.ts';
import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import { prepared } from '../../connection/prepared-client.ts';
import { lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
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
  prepared(`
with kept_lane as materialized (
  select lane_id from lanes where lane_id = any ($2::int[]) for key share
), clock as materialized (
  select now, ${idPrefix} as prefix from (select clock_timestamp() as now) as clock
  where (select count(*) from kept_lane) = $19::int
), numbered as (
  select (prefix || suffix)::uuid as job_id, ${constantOrOwn('lane_id', '$2::int[]')}, ${constantOrOwn('addon_id', '$3::text[]')},
    ${constantOrOwn('job_type', '$4::text[]')}, stream, ${constantOrOwn('priority', '$6::smallint[]')},
    ${constantOrOwn('cost_units', '$7::int[]')}, coalesce(constraints, $8::jsonb -> 0) as constraints, payload,
    client_request_id, ${constantOrOwn('is_unique', '$11::boolean[]')}, tags, max_runtime_s,
    ${constantOrOwn('max_attempts', '$14::int[]')}, ${constantOrOwn('retry_backoff_s', '$15::int[]')}, run_at, bytes,
    nextval('job_events_event_id_seq') as seq, now
  from clock, rows from (
    unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::int[], $10::text[],
      $11::boolean[], $12::text[], $13::int[], $14::int[], $15::int[], $16::float8[], $17::int[]),
    jsonb_array_elements($8::jsonb), jsonb_array_elements($9::jsonb)
  ) as new (suffix, lane_id, addon_id, job_type, stream, priority, cost_units, client_request_id, is_unique, tags,
    max_runtime_s, max_attempts, retry_backoff_s, run_at, bytes, constraints, payload)
), job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints, payload,
    client_request_id, is_unique, tags, max_runtime_s, max_attempts, retry_backoff_s, run_at, bytes, created_at)
  select job_id, seq, lane_id, addon_id, job_type, stream, priority, cost_units, constraints,
    payload, client_request_id, is_unique, coalesce(tags::text[], '{}'), max_runtime_s, max_attempts, retry_backoff_s,
    to_timestamp(run_at / 1000.0), bytes, now
  from numbered
  ${order}
  ${onConflict}
  returning job_id, seq, lane_id, stream, priority, cost_units, max_attempts, run_at, bytes, created_at
), live as (
  insert into live_jobs (job_id, seq, lane_id, priority, cost_units, bytes, state, check_at, attempts,
    attempts_limit, claims_lost, cancel_requested, updated_at, ready_at${isCrowded ? `, ${crowdColumns}` : ''})
  select job_id, seq, job.lane_id, job.priority, cost_units, bytes, ${stateNumber('QUEUED')},
    case when run_at > created_at then run_at end, 0, max_attempts, 0, false, created_at,
    greatest(run_at, created_at)${isCrowded ? `, ${crowdColumns}` : ''}
  from job ${isCrowded ? `cross join ${lateralByKey('lanes', 'lane_id', 'job.lane_id')} lane` : ''}
), enqueued as (
  insert into stream_messages (job_id, stream, attempt, written_at)
  select job_id, stream, 1, created_at from job where $18::boolean and stream is not null
), tallied as (${tally('job', 'created_at', { queued: 'count(*)', submitted: 'count(*)' })}
)
${answer}`);

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
  const rows = await sql.query<{ now: string; prefix: string | null; job_id: string | null }>(
    (keyed ? submitKeyed : submitPlain)[isCrowded ? 'crowded' : 'own'],
    [
      textArray(suffixes),
      sendOnceIfConstant(laneIds, numberArray),
      sendOnceIfConstant(ofEach('addonId'), textArray),
      sendOnceIfConstant(ofEach('jobType'), textArray),
      nullIfAllNull(ofEach('stream'), textArray),
      sendOnceIfConstant(ofEach('priority'), numberArray),
      sendOnceIfConstant(ofEach('costUnits'), numberArray),
      sendOnceIfConstant(ofEach('constraints'), jsonArray),
      jsonArray(ofEach('payload')),
      keyed ? textArray(ofEach('clientRequestId')) : null,
      sendOnceIfConstant(ofEach('unique'), booleanArray),
      nullIfAllNull(
        jobs.map(({ tags }) => (tags.length === 0 ? null : textArray(tags))),
        textArray,
      ),
      nullIfAllNull(ofEach('maxRuntimeS'), numberArray),
      sendOnceIfConstant(ofEach('maxAttempts'), numberArray),
      sendOnceIfConstant(ofEach('retryBackoffS'), numberArray),
      nullIfAllNull(ofEach('runAtMs'), numberArray),
      numberArray(ofEach('bytes')),
      keepsMessages,
      new Set(laneIds).size,
    ],
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

/** The existing jobs with these keys: `addon_id` and `client_request_id`. */
export async function findByClientRequest(
  sql: Sql,
  keys: readonly { addonId: string; clientRequestId: string }[],
  signal?: AbortSignal,
): Promise<FirstJob[]> {
  const rows = await sql.query<Omit<FirstJob, 'createdAtMs'> & { createdAt: string }>(
    `select job.addon_id as "addonId", job.client_request_id as "clientRequestId", job.job_id as "jobId",
      job.created_at as "createdAt"
    from unnest($1::text[], $2::text[]) as wanted (addon_id, client_request_id)
    join jobs job on job.addon_id = wanted.addon_id and job.client_request_id = wanted.client_request_id`,
    [textArray(keys.map((key) => key.addonId)), textArray(keys.map((key) => key.clientRequestId))],
    signal,
  );
  return rows.map(({ createdAt, ...row }) => ({ ...row, createdAtMs: timeMs(createdAt) }));
}
