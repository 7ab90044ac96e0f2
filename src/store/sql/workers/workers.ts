import { claimedStates, leasedStates, type State, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { WorkerRequest } from '../../../domain/workers/worker.ts';
import { type Sql, timeMs } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import type { Database } from '../../database.ts';
import { select } from '../../schema/tables.ts';
import { type WorkerRecord, WorkerRow } from '../../schema/worker-entities.ts';
import { textArray } from '../array-params.ts';

/**
 * Maximum number of rows in one statement: more would block the event loop for longer than a call should
 * wait.
 */
const writeMax = 250;

/** A row with times in milliseconds before now, because the database's clock is authoritative. */
export interface WorkerWrite
  extends Pick<
    WorkerRecord,
    'worker_id' | 'peer' | 'work_streams' | 'heartbeat_streams' | 'waiting_calls' | 'asks_cut'
  > {
  asks: readonly WorkerRequest[];
  sinceAgoMs: number;
  heardAgoMs: number;
  /** How long the row stays valid from now on. */
  lastsMs: number;
}

export type ServerColumns = Pick<WorkerRecord, 'server_id' | 'server_host' | 'server_pid'>;

/** Writes the workers that this server knows, in as few statements as possible. */
export async function writeWorkers(
  database: Database,
  server: ServerColumns,
  workers: readonly WorkerWrite[],
): Promise<void> {
  if (workers.length === 0) return;
  const nowMs = await databaseNowMs(database);
  // The query builder needs a quarter of the time of `upsertMany`.
  for (let i = 0; i < workers.length; i += writeMax) {
    const rows = workers.slice(i, i + writeMax).map((worker) => rowOf(worker, server, nowMs));
    await select(database, (tables) =>
      tables
        .insertInto('workers')
        .values(rows)
        .onConflict((conflict) =>
          conflict.columns(['worker_id', 'server_id']).doUpdateSet(({ ref }) => ({
            peer: ref('excluded.peer'),
            work_streams: ref('excluded.work_streams'),
            heartbeat_streams: ref('excluded.heartbeat_streams'),
            waiting_calls: ref('excluded.waiting_calls'),
            since: ref('excluded.since'),
            last_heard_at: ref('excluded.last_heard_at'),
            asks: ref('excluded.asks'),
            asks_cut: ref('excluded.asks_cut'),
            expires_at: ref('excluded.expires_at'),
          })),
        ),
    );
  }
}

const rowOf = (
  { sinceAgoMs, heardAgoMs, lastsMs, asks, ...columns }: WorkerWrite,
  server: ServerColumns,
  nowMs: number,
) => ({
  ...columns,
  ...server,
  asks: JSON.stringify(asks) as unknown as WorkerRequest[],
  since: new Date(nowMs - sinceAgoMs),
  last_heard_at: new Date(nowMs - heardAgoMs),
  expires_at: new Date(nowMs + lastsMs),
});

/** Removes rows of workers that this server no longer knows. */
export async function deleteWorkers(
  database: Database,
  serverId: string,
  workerIds: readonly string[] | 'all',
): Promise<void> {
  if (workerIds.length === 0) return;
  const which = workerIds === 'all' ? {} : { worker_id: { $in: [...workerIds] } };
  await database.em().nativeDelete(WorkerRow, { server_id: serverId, ...which });
}

/** Removes expired rows: those of servers that died. */
export async function removeExpiredWorkers(database: Database): Promise<number> {
  const nowMs = await databaseNowMs(database);
  return database.em().nativeDelete(WorkerRow, { expires_at: { $lte: new Date(nowMs) } });
}

async function databaseNowMs(sql: Sql): Promise<number> {
  const [row] = await sql.query<{ now: string }>('select clock_timestamp() as now', []);
  if (!row) throw new Error('the database did not tell the time');
  return timeMs(row.now);
}

export interface WorkerFilter {
  workerId: string | null;
  /** Only workers that request this stream; the empty one stands for jobs without one. */
  stream: string | null;
  /** Only workers that request this type, or all types. */
  jobType: string | null;
  /** Only workers after this one. */
  cursor: string | null;
  limit: number;
}

const names = (list: string, name: string) =>
  `case jsonb_typeof(ask -> '${list}') when 'array' then jsonb_exists(ask -> '${list}', ${name}) else`;

/** A request whose lists were cut may have named anything. */
const asksFor = `exists (
    select from jsonb_array_elements(workers.asks) ask
    where (ask ->> 'isCut')::boolean or (
      (@stream::text is null or ${names('streams', '@stream')} @stream = '' end)
      and (@jobType::text is null or ${names('jobTypes', '@jobType')} true end)
    )
  )`;

const listed = `(
  select distinct worker_id from workers
  where expires_at > clock_timestamp() and (@cursor::text is null or worker_id > @cursor)
    and (@workerId::text is null or worker_id = @workerId)
    and ((@stream::text is null and @jobType::text is null) or ${asksFor})
  order by worker_id limit @limit
)`;

/**
 * The workers that hold jobs in a state, found by a loose scan of the index from one to the next: a worker
 * with many jobs costs no more than one with a single job.
 */
const holders = (state: State): string => {
  const held = `state = ${stateNumber(state)} and state <> ${stateNumber('QUEUED')}`;
  return `(
  with recursive holder (worker_id, n) as (
    (select claimed_by, 1 from live_jobs
      where ${held} and claimed_by > coalesce(@cursor::text, '')
        and (@workerId::text is null or claimed_by = @workerId)
      order by claimed_by limit 1)
    union all
    select (select claimed_by from live_jobs
      where ${held} and claimed_by > holder.worker_id and (@workerId::text is null or claimed_by = @workerId)
      order by claimed_by limit 1), n + 1
    from holder where worker_id is not null and n < @limit
  )
  select worker_id from holder where worker_id is not null and @stream::text is null
    and @jobType::text is null
)`;
};

const page = statement(
  ['cursor', 'limit', 'stream', 'jobType', 'workerId'],
  `select worker_id from (
  ${[listed, ...[...claimedStates, ...leasedStates].map(holders)].join('\n  union\n  ')}
) known order by worker_id limit @limit`,
);

/**
 * The ids of the next workers that servers know or that hold jobs, in the order of the database's collation.
 */
export async function pageOfWorkers(sql: Sql, filter: WorkerFilter, signal?: AbortSignal): Promise<string[]> {
  const { cursor, limit, stream, jobType, workerId } = filter;
  const params = { cursor, limit, stream, jobType, workerId };
  const rows = await page.query<{ worker_id: string }>(sql, params, signal);
  return rows.map(({ worker_id }) => worker_id);
}

/** The rows of these workers from all servers, by worker and then by server. */
export async function readWorkers(
  database: Database,
  workerIds: readonly string[],
): Promise<Map<string, WorkerRecord[]>> {
  if (workerIds.length === 0) return new Map();
  const nowMs = await databaseNowMs(database);
  const rows = await database.em().find(
    WorkerRow,
    { worker_id: { $in: [...workerIds] }, expires_at: { $gt: new Date(nowMs) } },
    {
      orderBy: { worker_id: 'asc', server_id: 'asc' },
      disableIdentityMap: true,
    },
  );
  return Map.groupBy(rows, ({ worker_id }) => worker_id);
}

export interface HeldJobs {
  activeLeases: number;
  claims: number;
  lastHeardAtMs: number | null;
}

const countOf = (states: readonly State[]) => `(
  select count(*)::int as jobs, max(heartbeat_at) as heartbeat_at from (
    select coalesce(last_heartbeat_at, updated_at) as heartbeat_at from live_jobs
    where state in (${states.map(stateNumber).join(', ')}) and state <> ${stateNumber('QUEUED')}
      and claimed_by = worker.worker_id
    limit @countMax
  ) known
)`;

const jobsHeld = statement(
  ['workerIds', 'countMax'],
  `
select worker.worker_id, leased.jobs as leases, claimed.jobs as claims,
  greatest(leased.heartbeat_at, claimed.heartbeat_at) as heartbeat_at
from unnest(@workerIds::text[]) as worker (worker_id)
cross join lateral ${countOf(leasedStates)} leased cross join lateral ${countOf(claimedStates)} claimed`,
);

/**
 * Number of jobs that each of these workers holds, counted up to a bound, and the time of its last heartbeat
 * or change.
 */
export async function heldByWorkers(
  sql: Sql,
  workerIds: readonly string[],
  countMax: number,
  signal?: AbortSignal,
): Promise<Map<string, HeldJobs>> {
  if (workerIds.length === 0) return new Map();
  type Row = { worker_id: string; leases: number; claims: number; heartbeat_at: string | null };
  const rows = await jobsHeld.query<Row>(sql, { workerIds: textArray(workerIds), countMax }, signal);
  return new Map(
    rows.map(({ worker_id, leases, claims, heartbeat_at }) => [
      worker_id,
      { activeLeases: leases, claims, lastHeardAtMs: timeMs(heartbeat_at) },
    ]),
  );
}
