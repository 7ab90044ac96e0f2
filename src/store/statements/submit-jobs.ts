import { stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import { type Sql, timeMs } from '../sql.ts';
import {
  booleanArray,
  columnsOf,
  firstForAll,
  jsonArray,
  noneOr,
  numberArray,
  oneForAll,
  textArray,
  uuidArray,
} from './arrays.ts';
import { tally } from './stat-tallies.ts';

/** A job that is about to be written. JSON comes as text: it is parsed once, by the database. */
export interface NewJob {
  jobId: string;
  addonId: string;
  jobType: string;
  stream: string | null;
  priority: number;
  costUnits: number;
  constraints: string;
  payload: string;
  clientRequestId: string | null;
  unique: boolean;
  tags: readonly string[];
  maxRuntimeS: number | null;
  maxAttempts: number;
  retryBackoffS: number;
  runAtMs: number | null;
  /** The size of `constraints` and `payload`. */
  bytes: number;
}

export interface SubmittedJobs {
  createdAtMs: number;
  /** The jobs that were written; the others had a `client_request_id` that was taken. */
  written: ReadonlySet<string> | 'all';
}

const sameForAll = (column: string, array: string): string => `${firstForAll(column, array)} as ${column}`;

// One statement writes a whole batch: the jobs, their places in line and what there is to count. A place in line is the
// number of the event that the submission is, which is told from the job; see `event-record.ts`. Everything after the
// first insert feeds on its `returning`; joining the parameters again would compare every job with every other.
const submit = (order: string, onConflict: string, answer: string) =>
  hot(`
with clock as materialized (
  select clock_timestamp() as now
), numbered as (
  select job_id, ${sameForAll('lane_id', '$2::int[]')}, ${sameForAll('addon_id', '$3::text[]')},
    ${sameForAll('job_type', '$4::text[]')}, stream, ${sameForAll('priority', '$6::smallint[]')},
    ${sameForAll('cost_units', '$7::int[]')}, coalesce(constraints, $8::jsonb -> 0) as constraints, payload,
    client_request_id, ${sameForAll('is_unique', '$11::boolean[]')}, tags, max_runtime_s,
    ${sameForAll('max_attempts', '$14::int[]')}, ${sameForAll('retry_backoff_s', '$15::int[]')}, run_at, bytes,
    nextval('job_events_event_id_seq') as seq, now
  from clock, rows from (
    unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::int[], $10::text[],
      $11::boolean[], $12::text[], $13::int[], $14::int[], $15::int[], $16::float8[], $17::int[]),
    jsonb_array_elements($8::jsonb), jsonb_array_elements($9::jsonb)
  ) as new (job_id, lane_id, addon_id, job_type, stream, priority, cost_units, client_request_id, is_unique, tags,
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
    attempts_limit, claims_lost, cancel_requested, updated_at, ready_at)
  select job_id, seq, lane_id, priority, cost_units, bytes, ${stateNumber('QUEUED')},
    case when run_at > created_at then run_at end, 0, max_attempts, 0, false, created_at,
    greatest(run_at, created_at)
  from job
), enqueued as (
  insert into stream_messages (job_id, stream, attempt, written_at)
  select job_id, stream, 1, created_at from job where $18::boolean and stream is not null
), tallied as (${tally('job', 'created_at', { queued: 'count(*)', submitted: 'count(*)' })}
)
${answer}`);

const submitPlain = submit('', '', 'select now, null as job_id from clock');
// Keys are taken in one order, whatever the order of the jobs, so that two batches with the same keys wait for each
// other and never in a circle.
const submitKeyed = submit(
  'order by addon_id, client_request_id, seq',
  'on conflict (addon_id, client_request_id) where client_request_id is not null do nothing',
  'select created_at as now, job_id from job union all select now, null from clock',
);

/**
 * Writes the jobs that are not there yet into their lanes, in the order given, and says which those were. The messages
 * of those that have a stream are written with them where messages are kept.
 */
export async function submitJobs(
  sql: Sql,
  jobs: readonly NewJob[],
  { laneIds, keepsMessages }: { laneIds: readonly number[]; keepsMessages: boolean },
  signal?: AbortSignal,
): Promise<SubmittedJobs> {
  const keyed = jobs.some((job) => job.clientRequestId !== null);
  const ofEach = columnsOf(jobs);
  const rows = await sql.query<{ now: string; job_id: string | null }>(
    keyed ? submitKeyed : submitPlain,
    [
      uuidArray(ofEach('jobId')),
      oneForAll(laneIds, numberArray),
      oneForAll(ofEach('addonId'), textArray),
      oneForAll(ofEach('jobType'), textArray),
      noneOr(ofEach('stream'), textArray),
      oneForAll(ofEach('priority'), numberArray),
      oneForAll(ofEach('costUnits'), numberArray),
      oneForAll(ofEach('constraints'), jsonArray),
      jsonArray(ofEach('payload')),
      keyed ? textArray(ofEach('clientRequestId')) : null,
      oneForAll(ofEach('unique'), booleanArray),
      noneOr(
        jobs.map(({ tags }) => (tags.length === 0 ? null : textArray(tags))),
        textArray,
      ),
      noneOr(ofEach('maxRuntimeS'), numberArray),
      oneForAll(ofEach('maxAttempts'), numberArray),
      oneForAll(ofEach('retryBackoffS'), numberArray),
      noneOr(ofEach('runAtMs'), numberArray),
      numberArray(ofEach('bytes')),
      keepsMessages,
    ],
    signal,
  );
  const last = rows.at(-1);
  if (!last) throw new Error('the database did not tell the time');
  const written = keyed ? new Set(rows.flatMap(({ job_id }) => job_id ?? [])) : 'all';
  return { createdAtMs: timeMs(last.now), written };
}

export interface FirstJob {
  addonId: string;
  clientRequestId: string;
  jobId: string;
  createdAtMs: number;
}

/** The jobs behind these keys, where there are any: `key` is `addon_id` and `client_request_id`. */
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
