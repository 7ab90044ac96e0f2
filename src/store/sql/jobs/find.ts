import { type Kysely, sql as raw } from 'kysely';
import type { Job, JobWithResult, JsonObject } from '../../../domain/jobs/job.ts';
import { isTerminal, type State, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { limits } from '../../../domain/limits.ts';
import type { EntitySql } from '../../connection/sql.ts';
import { select, type Tables } from '../../schema/tables.ts';
import { inScope, type ScopePatterns } from '../access/in-scope.ts';
import { firstIdAt } from './ids.ts';
import { type EndedRecord, jobSelection, liveSelection, toJob, toJobWithResult } from './record.ts';

/** Unfinished and ended jobs. Both queries have the same columns, so that they can be combined. */
const unfinished = (tables: Kysely<Tables>) =>
  tables
    .selectFrom('live_jobs as live')
    .innerJoin('jobs as job', 'job.job_id', 'live.job_id')
    .select(jobSelection)
    .select(liveSelection)
    .select(noOutcome);

const noOutcome = [
  raw<boolean>`false`.as('dead_lettered'),
  raw<Date | null>`null::timestamptz`.as('started_at'),
  raw<string | null>`null::text`.as('error_text'),
  raw<JsonObject | null>`null::jsonb`.as('error_detail'),
  raw<unknown>`null::jsonb`.as('result'),
  raw<JsonObject | null>`null::jsonb`.as('metrics'),
] as const;

const ended = (tables: Kysely<Tables>) =>
  tables
    .selectFrom('job_outcomes as outcome')
    .innerJoin('jobs as job', 'job.job_id', 'outcome.job_id')
    .select(jobSelection)
    .select([
      'outcome.state',
      raw<Date | null>`null::timestamptz`.as('check_at'),
      'outcome.attempts',
      'outcome.claimed_by',
      raw<Date | null>`null::timestamptz`.as('claim_expires_at'),
      'outcome.lease_id',
      'outcome.cancel_requested',
      'outcome.progress',
      'outcome.note',
      'outcome.finished_at as updated_at',
    ])
    .select([
      raw<boolean>`outcome.dead_stream is not null`.as('dead_lettered'),
      'outcome.started_at',
      'outcome.error_text',
      'outcome.error_detail',
      'outcome.result',
      'outcome.metrics',
    ]);

/**
 * A job and its result. One statement reads both tables: a job that ends in between would otherwise be in
 * neither.
 */
export async function findJob(
  sql: EntitySql,
  jobId: string,
  signal?: AbortSignal,
): Promise<JobWithResult | undefined> {
  const [row] = await select(
    sql,
    (tables) =>
      unfinished(tables)
        .where('live.job_id', '=', jobId)
        .unionAll(ended(tables).where('outcome.job_id', '=', jobId)),
    signal,
  );
  return row && toJobWithResult(row as EndedRecord);
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
  oldestFirst: boolean;
  /** Only jobs after this one in the requested order. */
  cursor: string | null;
  limit: number;
  /** What the caller's credential reaches; null for everything. */
  scope?: ScopePatterns | null;
}

export interface JobPage {
  jobs: Job[];
  /** Number of jobs within the limit; more than in `jobs` if the answer reached its size limit. */
  found: number;
}

/**
 * A page of jobs, newest or oldest first by `created_at`. Jobs of the same microsecond have the order of
 * their submission, in the same direction. Ids have this order (see `ids.ts`), so nothing is sorted. The page
 * after a given id is always the same, also if jobs have been added since.
 */
export async function listJobs(sql: EntitySql, filter: JobFilter, signal?: AbortSignal): Promise<JobPage> {
  const order = orderOf(filter);
  const rows = await select(
    sql,
    (tables) => {
      const pages = sourcesOf(filter).map((source) =>
        tables.selectFrom(pageOf(tables, source, filter).as('page')).selectAll(),
      );
      const found = pages.reduce((all, page) => all.unionAll(page));
      const limited = found.orderBy('job_id', order).limit(filter.limit);
      const measured = tables
        .selectFrom(limited.as('limited'))
        .selectAll()
        .select([
          raw<number>`(count(*) over ())::int`.as('found'),
          raw<number>`sum(bytes + ${limits.jobOverheadBytes}) over (order by job_id ${raw.raw(order)})`.as(
            'bytes_so_far',
          ),
          raw<number>`row_number() over (order by job_id ${raw.raw(order)})`.as('place'),
        ]);
      return tables
        .selectFrom(measured.as('measured'))
        .selectAll()
        .where((is) => is.or([is('place', '=', 1), is('bytes_so_far', '<=', limits.answerBytes)]))
        .orderBy('job_id', order);
    },
    signal,
  );
  return { jobs: rows.map((row) => toJob(row as EndedRecord)), found: rows[0]?.found ?? 0 };
}

/**
 * A table that holds jobs in some states. Each source has an index of its own, and is read only if needed.
 */
interface Source {
  of: 'unfinished' | 'ended';
  /** The numbers of the states, or null for all. */
  states: number[] | null;
  /** Excludes DONE with a condition that lets the planner use the index of the other outcomes. */
  isUnhappy?: boolean;
}

function sourcesOf({ states, deadLettered }: JobFilter): Source[] {
  if (deadLettered) return [{ of: 'ended', states: states?.map(stateNumber) ?? null }];
  if (states === null) {
    return [
      { of: 'unfinished', states: null },
      { of: 'ended', states: null },
    ];
  }
  const numbers = (wanted: (state: State) => boolean) => states.filter(wanted).map(stateNumber);
  const sources: Source[] = [
    { of: 'unfinished', states: numbers((state) => !isTerminal(state)) },
    { of: 'ended', states: numbers((state) => state === 'DONE') },
    { of: 'ended', states: numbers((state) => isTerminal(state) && state !== 'DONE'), isUnhappy: true },
  ];
  return sources.filter((source) => source.states?.length !== 0);
}

function pageOf(tables: Kysely<Tables>, source: Source, filter: JobFilter) {
  return source.of === 'unfinished'
    ? pageOfUnfinished(tables, source, filter)
    : pageOfEnded(tables, source, filter);
}

function pageOfUnfinished(tables: Kysely<Tables>, { states }: Source, filter: JobFilter) {
  const { before, after } = boundsOf(filter);
  return unfinished(tables)
    .select('job.bytes')
    .$if(states !== null, (query) => query.where('live.state', 'in', states ?? []))
    .$if(before !== null, (query) => query.where('live.job_id', '<', before))
    .$if(after !== null, (query) => query.where('live.job_id', '>', after))
    .$if(filter.scope != null, (query) => query.where(inScope(filter.scope as ScopePatterns)))
    .where(({ and, eb }) => and(ofJob(filter).map(([column, is, value]) => eb(column, is, value))))
    .orderBy('live.job_id', orderOf(filter))
    .limit(filter.limit);
}

function pageOfEnded(tables: Kysely<Tables>, { states, isUnhappy }: Source, filter: JobFilter) {
  const { before, after } = boundsOf(filter);
  const { deadLettered, stream } = filter;
  return (
    ended(tables)
      .select('job.bytes')
      .$if(isUnhappy === true, (query) => query.where('outcome.state', '<>', stateNumber('DONE')))
      .$if(states !== null, (query) => query.where('outcome.state', 'in', states ?? []))
      .$if(deadLettered === false, (query) => query.where('outcome.dead_stream', 'is', null))
      .$if(deadLettered === true, (query) => query.where('outcome.dead_stream', 'is not', null))
      // The index of dead letters begins with the stream.
      .$if(deadLettered === true && stream !== null, (query) =>
        query.where('outcome.dead_stream', '=', stream),
      )
      .$if(before !== null, (query) => query.where('outcome.job_id', '<', before))
      .$if(after !== null, (query) => query.where('outcome.job_id', '>', after))
      .$if(filter.scope != null, (query) => query.where(inScope(filter.scope as ScopePatterns)))
      .where(({ and, eb }) => and(ofJob(filter).map(([column, is, value]) => eb(column, is, value))))
      .orderBy('outcome.job_id', orderOf(filter))
      .limit(filter.limit)
  );
}

type JobColumn = 'job.addon_id' | 'job.job_type' | 'job.stream' | 'job.created_at';

/**
 * Conditions on a job's own row. Times are compared in milliseconds, which is the precision of answers: a
 * client that continues from the last `created_at` it received does not get that job again.
 */
function ofJob(filter: JobFilter): [JobColumn, '=' | '>=' | '<', string | Date][] {
  const { addonId, jobType, stream, createdAfterMs, createdBeforeMs } = filter;
  return [
    ...(addonId === null ? [] : ([['job.addon_id', '=', addonId]] as const)),
    ...(jobType === null ? [] : ([['job.job_type', '=', jobType]] as const)),
    ...(stream === null ? [] : ([['job.stream', '=', stream]] as const)),
    ...(createdAfterMs === null ? [] : ([['job.created_at', '>=', new Date(createdAfterMs + 1)]] as const)),
    ...(createdBeforeMs === null ? [] : ([['job.created_at', '<', new Date(createdBeforeMs)]] as const)),
  ].map((condition) => [...condition]);
}

/**
 * Jobs of earlier versions have ids with a server's time, which may differ from the database's by less than
 * this.
 */
const clockSlackMs = 10 * 60 * 1000;

/** Ids that bound the page in the index. Near them, `created_at` decides. */
function boundsOf({ cursor, oldestFirst, createdAfterMs, createdBeforeMs }: JobFilter) {
  const before = createdBeforeMs === null ? null : firstIdAt(createdBeforeMs + clockSlackMs);
  const after = createdAfterMs === null ? null : firstIdAt(createdAfterMs - clockSlackMs);
  if (cursor === null) return { before, after };
  return oldestFirst
    ? { before, after: after !== null && after > cursor ? after : cursor }
    : { before: before !== null && before < cursor ? before : cursor, after };
}

const orderOf = ({ oldestFirst }: JobFilter): 'asc' | 'desc' => (oldestFirst ? 'asc' : 'desc');

export interface DeadLetterFilter {
  stream: string | null;
  addonId: string | null;
  jobType: string | null;
  /** Only jobs whose last error has this code. */
  errorCode: string | null;
  limit: number;
}

/** Locks dead letters, the oldest first, and skips those that another transaction has locked. */
export async function findDeadLetters(
  sql: EntitySql,
  { stream, addonId, jobType, errorCode, limit }: DeadLetterFilter,
  signal?: AbortSignal,
): Promise<string[]> {
  const rows = await select(
    sql,
    (tables) =>
      tables
        .selectFrom('job_outcomes as outcome')
        .innerJoin('jobs as job', 'job.job_id', 'outcome.job_id')
        .select('outcome.job_id')
        .where('outcome.dead_stream', 'is not', null)
        .$if(stream !== null, (query) => query.where('outcome.dead_stream', '=', stream))
        .$if(addonId !== null, (query) => query.where('job.addon_id', '=', addonId as string))
        .$if(jobType !== null, (query) => query.where('job.job_type', '=', jobType as string))
        .$if(errorCode !== null, (query) => query.where(raw`outcome.error_detail->>'code'`, '=', errorCode))
        .orderBy('outcome.job_id')
        .limit(limit)
        .forUpdate('outcome')
        .skipLocked(),
    signal,
  );
  return rows.map(({ job_id }) => job_id);
}
