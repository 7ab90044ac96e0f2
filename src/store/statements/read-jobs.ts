import type { Job, JobWithResult } from '../../domain/job.ts';
import { limits } from '../../domain/limits.ts';
import { isTerminal, type State, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import { rowOf, type Sql } from '../sql.ts';
import { numberArray, textArray } from './arrays.ts';
import {
  type EndedRecord,
  type JobRecord,
  jobColumns,
  liveColumns,
  toJob,
  toJobWithResult,
} from './job-record.ts';

/** What is told of a job that has ended, beside its own row, from `outcome`. */
export const outcomeColumns = `outcome.state, null::timestamptz as check_at, outcome.attempts, outcome.claimed_by,
  null::timestamptz as claim_expires_at, outcome.lease_id, outcome.cancel_requested, outcome.progress, outcome.note,
  outcome.finished_at as updated_at, outcome.dead_stream is not null as dead_lettered, outcome.started_at, outcome.error_text, outcome.error_detail, outcome.result,
  outcome.metrics`;

const noOutcome = `null::timestamptz as started_at, null as error_text, null::jsonb as error_detail,
  null::jsonb as result, null::jsonb as metrics`;

/** Both halves in one statement: a job that ends in between would otherwise be in neither. */
const read = hot(`
select ${jobColumns('job')}, ${liveColumns('live')}, ${noOutcome}
from live_jobs live cross join ${rowOf('jobs', 'job_id', 'live.job_id')} job
where live.job_id = any ($1::uuid[])
union all
select ${jobColumns('job')}, ${outcomeColumns}
from job_outcomes outcome cross join ${rowOf('jobs', 'job_id', 'outcome.job_id')} job
where outcome.job_id = any ($1::uuid[])`);

/** The jobs with these ids that exist, in no order. */
export async function readJobs(
  sql: Sql,
  jobIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, JobWithResult>> {
  if (jobIds.length === 0) return new Map();
  const rows = await sql.query<EndedRecord>(read, [textArray(jobIds)], signal);
  return new Map(rows.map((row) => [row.job_id, toJobWithResult(row)]));
}

export interface JobFilter {
  states: readonly State[] | null;
  addonId: string | null;
  jobType: string | null;
  stream: string | null;
  /** Only dead letters, or only other jobs. */
  deadLettered: boolean | null;
  createdAfterMs: number | null;
  createdBeforeMs: number | null;
  /** Only jobs older than this one. */
  cursor: string | null;
  limit: number;
}

export interface JobPage {
  jobs: Job[];
  /** How many jobs the limit allows; more than there are in `jobs` where those fill an answer. */
  found: number;
}

/** Ids are made in the order of time, but by clocks that may disagree; by less than this. */
const clockSlackMs = 10 * 60 * 1000;

/**
 * A page of jobs, newest first. Ids rise with time, so the order needs no sort and the page after a given id is
 * always the same, whatever has arrived since.
 */
export async function listJobs(sql: Sql, filter: JobFilter, signal?: AbortSignal): Promise<JobPage> {
  const before = lowest(filter.cursor, idAt(filter.createdBeforeMs, clockSlackMs));
  const after = idAt(filter.createdAfterMs, -clockSlackMs);
  const sources = sourcesOf(filter);
  const pages = sources.map((source, i) => `(${page(source, `$${10 + i}::smallint[]`)})`);
  const rows = await sql.query<JobRecord & { found: number }>(
    `select * from (
      select limited.*, count(*) over ()::int as found, sum(bytes) over (order by job_id desc) - bytes as bytes_before
      from (select * from (${pages.join(' union all ')}) page order by job_id desc limit $8) limited
    ) measured
    where bytes_before < ${limits.frameBytes} order by job_id desc`,
    [
      before,
      after,
      filter.addonId,
      filter.jobType,
      filter.stream,
      filter.createdAfterMs,
      filter.createdBeforeMs,
      filter.limit,
      filter.deadLettered === false,
      ...sources.flatMap(({ states }) => (states === null ? [] : [numberArray(states)])),
    ],
    signal,
  );
  return { jobs: rows.map(toJob), found: rows[0]?.found ?? 0 };
}

/** Where jobs in some states are found. Each source has an index of its own, and is read only where it is wanted. */
interface Source {
  table: 'live' | 'outcome';
  /** The numbers of the states, or null for all of the table. */
  states: number[] | null;
  /** A condition that lets the planner use a partial index. */
  where: string;
}

function sourcesOf({ states, deadLettered, stream }: JobFilter): Source[] {
  if (deadLettered) {
    const numbers = states?.map(stateNumber) ?? null;
    return [{ table: 'outcome', states: numbers, where: isDead(stream, '$5') }];
  }
  if (states === null) {
    return [
      { table: 'live', states: null, where: 'true' },
      { table: 'outcome', states: null, where: 'true' },
    ];
  }
  const numbers = (wanted: (state: State) => boolean) => states.filter(wanted).map(stateNumber);
  const sources: Source[] = [
    { table: 'live', states: numbers((state) => !isTerminal(state)), where: 'true' },
    { table: 'outcome', states: numbers((state) => state === 'DONE'), where: 'true' },
    {
      table: 'outcome',
      states: numbers((state) => isTerminal(state) && state !== 'DONE'),
      where: `outcome.state <> ${stateNumber('DONE')}`,
    },
  ];
  return sources.filter((source) => source.states?.length !== 0);
}

const page = ({ table, states, where }: Source, statesParam: string) => `
  select ${jobColumns('job')}, job.bytes, ${table === 'live' ? `${liveColumns('live')}, ${noOutcome}` : outcomeColumns}
  from ${table === 'live' ? 'live_jobs live' : 'job_outcomes outcome'}
  join jobs job on job.job_id = ${table}.job_id
  where ${where} and ${states === null ? 'true' : `${table}.state = any (${statesParam})`}
    and ($1::uuid is null or ${table}.job_id < $1) and ($2::uuid is null or ${table}.job_id > $2)
    and ($3::text is null or job.addon_id = $3) and ($4::text is null or job.job_type = $4)
    and ($5::text is null or job.stream = $5)
    and ($6::float8 is null or job.created_at > to_timestamp($6 / 1000.0))
    and ($7::float8 is null or job.created_at < to_timestamp($7 / 1000.0))
    and not ($9::boolean and ${table === 'live' ? 'false' : 'outcome.dead_stream is not null'})
  order by ${table}.job_id desc limit $8`;

/** The smallest id that could have been made at this time, moved by the slack. */
function idAt(ms: number | null, slackMs: number): string | null {
  if (ms === null) return null;
  const hex = Math.min(Math.max(Math.trunc(ms + slackMs), 0), 2 ** 48 - 1)
    .toString(16)
    .padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

const lowest = (a: string | null, b: string | null) => (a === null || (b !== null && b < a) ? b : a);

/** Which outcomes are dead letters: of one stream, or of all. The index begins with the stream. */
const isDead = (stream: string | null, param: string): string =>
  stream === null ? 'outcome.dead_stream is not null' : `outcome.dead_stream = ${param}`;

export interface DeadLetterFilter {
  stream: string | null;
  addonId: string | null;
  jobType: string | null;
  /** Only those whose last error has this code. */
  errorCode: string | null;
  limit: number;
}

/** Locks dead letters, the oldest first, passing over those that somebody else has. */
export async function findDeadLetters(
  sql: Sql,
  { stream, addonId, jobType, errorCode, limit }: DeadLetterFilter,
  signal?: AbortSignal,
): Promise<string[]> {
  const rows = await sql.query<{ job_id: string }>(
    `select outcome.job_id from job_outcomes outcome join jobs job on job.job_id = outcome.job_id
    where ${isDead(stream, '$1')} and ($1::text is null or outcome.dead_stream = $1) and ($2::text is null or job.addon_id = $2)
      and ($3::text is null or job.job_type = $3) and ($4::text is null or outcome.error_detail->>'code' = $4)
    order by outcome.job_id limit $5
    for update of outcome skip locked`,
    [stream, addonId, jobType, errorCode, limit],
    signal,
  );
  return rows.map(({ job_id }) => job_id);
}
