import { type Kysely, sql as raw } from 'kysely';
import type { HeartbeatStats } from '../../../domain/explain/silences.ts';
import type { JsonObject } from '../../../domain/jobs/job.ts';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import { type Lease, type LeaseState, leaseStates } from '../../../domain/leases/lease.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { select, type Tables } from '../../schema/tables.ts';
import { inScope, isWorkerIn, type ScopePatterns } from '../access/in-scope.ts';
import { type LeaseRecord, leaseStateNumber, toLease } from './record.ts';

const leased = leasedStates.map(stateNumber);

export interface LeaseFilter {
  states: readonly LeaseState[] | null;
  workerId: string | null;
  jobId: string | null;
  /** Only leases older than this one. */
  cursor: string | null;
  limit: number;
  /** What the caller's credential reaches; null for everything. */
  scope?: ScopePatterns | null;
  /** The patterns of the workers whose leases it sees; null for all. */
  workers?: readonly string[] | null;
}

/** A page of leases, newest first. Ids rise with time, so nothing is sorted. */
export async function listLeases(
  sql: EntitySql,
  filter: LeaseFilter,
  signal?: AbortSignal,
): Promise<Lease[]> {
  const wanted = filter.states ?? leaseStates;
  const ended = wanted.filter((state) => state !== 'ACTIVE').map(leaseStateNumber);
  if (wanted.length === 0) return [];
  const rows = await select(
    sql,
    (tables) => {
      const pages = [
        ...(wanted.includes('ACTIVE') ? [pageOfActive(tables, filter)] : []),
        ...(ended.length > 0 ? [pageOfEnded(tables, ended, filter), pageOfLast(tables, ended, filter)] : []),
      ].map((page) => tables.selectFrom(page.as('page')).selectAll());
      return pages
        .reduce((all, page) => all.unionAll(page))
        .orderBy('lease_id', 'desc')
        .limit(filter.limit);
    },
    signal,
  );
  return rows.map(toLease);
}

/** Active leases are in the rows of their jobs. */
const pageOfActive = (
  tables: Kysely<Tables>,
  { workerId, jobId, cursor, limit, scope, workers }: LeaseFilter,
) =>
  tables
    .selectFrom('live_jobs as live')
    .innerJoin('jobs as job', 'job.job_id', 'live.job_id')
    .select([
      'live.lease_id',
      'live.job_id as lease_job_id',
      'job.addon_id as lease_addon_id',
      'live.claimed_by as worker_id',
      'live.cost_units as lease_cost_units',
      'live.lease_ttl_s as ttl_s',
      raw<number>`0::smallint`.as('lease_state'),
      'live.started_at as granted_at',
      'live.last_heartbeat_at',
      'live.expires_at',
      'live.fence',
      'live.attempts as attempt',
      raw<Date | null>`null::timestamptz`.as('ended_at'),
      raw<number | null>`null::smallint`.as('release_status'),
      raw<string | null>`null::text`.as('lease_error'),
      raw<JsonObject | null>`null::jsonb`.as('lease_error_detail'),
      raw<boolean>`false`.as('requeued'),
      raw<boolean>`false`.as('lease_dead_lettered'),
    ])
    .where('live.lease_id', 'is not', null)
    .where('live.state', 'in', leased)
    .$if(cursor !== null, (query) => query.where('live.lease_id', '<', cursor))
    .$if(workerId !== null, (query) => query.where('live.claimed_by', '=', workerId))
    .$if(scope != null, (query) => query.where(inScope(scope as ScopePatterns)))
    .$if(workers != null, (query) => query.where(isWorkerIn('live.claimed_by', workers ?? [])))
    .$if(jobId !== null, (query) => query.where('live.job_id', '=', jobId as string))
    .orderBy('live.lease_id', 'desc')
    .limit(limit)
    .$castTo<LeaseRecord>();

/** Leases whose jobs continued have rows of their own. */
const pageOfEnded = (
  tables: Kysely<Tables>,
  states: readonly number[],
  { workerId, jobId, cursor, limit, scope, workers }: LeaseFilter,
) =>
  tables
    .selectFrom('leases as lease')
    .innerJoin('jobs as job', 'job.job_id', 'lease.job_id')
    .select([
      'lease.lease_id',
      'lease.job_id as lease_job_id',
      'job.addon_id as lease_addon_id',
      'lease.worker_id',
      'lease.cost_units as lease_cost_units',
      'lease.ttl_s',
      'lease.state as lease_state',
      'lease.granted_at',
      'lease.last_heartbeat_at',
      'lease.expires_at',
      'lease.fence',
      'lease.attempt',
      'lease.ended_at',
      'lease.release_status',
      'lease.error_text as lease_error',
      'lease.error_detail as lease_error_detail',
      'lease.requeued',
      'lease.dead_lettered as lease_dead_lettered',
    ])
    .where('lease.state', 'in', states)
    .$if(cursor !== null, (query) => query.where('lease.lease_id', '<', cursor as string))
    .$if(workerId !== null, (query) => query.where('lease.worker_id', '=', workerId as string))
    .$if(scope != null, (query) => query.where(inScope(scope as ScopePatterns)))
    .$if(workers != null, (query) => query.where(isWorkerIn('lease.worker_id', workers ?? [])))
    .$if(jobId !== null, (query) => query.where('lease.job_id', '=', jobId as string))
    .orderBy('lease.lease_id', 'desc')
    .limit(limit)
    .$castTo<LeaseRecord>();

/** A job's last lease is in the job's outcome. */
const pageOfLast = (
  tables: Kysely<Tables>,
  states: readonly number[],
  { workerId, jobId, cursor, limit, scope, workers }: LeaseFilter,
) =>
  tables
    .selectFrom('job_outcomes as outcome')
    .innerJoin('jobs as job', 'job.job_id', 'outcome.job_id')
    .select([
      'outcome.lease_id',
      'outcome.job_id as lease_job_id',
      'job.addon_id as lease_addon_id',
      'outcome.claimed_by as worker_id',
      'job.cost_units as lease_cost_units',
      'outcome.ttl_s',
      'outcome.lease_state',
      'outcome.started_at as granted_at',
      'outcome.last_heartbeat_at',
      'outcome.expires_at',
      'outcome.fence',
      'outcome.attempts as attempt',
      'outcome.finished_at as ended_at',
      'outcome.release_status',
      'outcome.error_text as lease_error',
      'outcome.error_detail as lease_error_detail',
      raw<boolean>`false`.as('requeued'),
      raw<boolean>`outcome.dead_stream is not null`.as('lease_dead_lettered'),
    ])
    .where('outcome.fence', 'is not', null)
    .where('outcome.lease_state', 'in', states)
    .$if(cursor !== null, (query) => query.where('outcome.lease_id', '<', cursor))
    .$if(workerId !== null, (query) => query.where('outcome.claimed_by', '=', workerId))
    .$if(scope != null, (query) => query.where(inScope(scope as ScopePatterns)))
    .$if(workers != null, (query) => query.where(isWorkerIn('outcome.claimed_by', workers ?? [])))
    .$if(jobId !== null, (query) => query.where('outcome.job_id', '=', jobId as string))
    .orderBy('outcome.lease_id', 'desc')
    .limit(limit)
    .$castTo<LeaseRecord>();

const signColumns = ['lease_id', 'heartbeats', 'longest_silence_ms', 'longest_silence_since'] as const;

interface Signs {
  lease_id: string;
  heartbeats: number | null;
  longest_silence_ms: number | null;
  longest_silence_since: string | null;
}

/**
 * Heartbeat statistics of these leases, by lease id. They are read separately, because granting, ending and
 * listing leases does not need them. A queued job still names its last lease, which has a row of its own by
 * then.
 */
export async function readLifeSigns(
  sql: EntitySql,
  leaseIds: readonly string[],
): Promise<Map<string, HeartbeatStats>> {
  if (leaseIds.length === 0) return new Map();
  const rows = await select(sql, (tables) =>
    tables
      // By key first (`offset 0`): with both conditions at once, the planner may read all leased rows.
      .selectFrom((eb) =>
        eb.selectFrom('live_jobs').selectAll().where('lease_id', 'in', leaseIds).offset(0).as('live'),
      )
      .select(signColumns)
      .where('state', 'in', leased)
      .$castTo<Signs>()
      .unionAll(
        tables.selectFrom('leases').select(signColumns).where('lease_id', 'in', leaseIds).$castTo<Signs>(),
      )
      .unionAll(
        tables
          .selectFrom('job_outcomes')
          .select(signColumns)
          .where('lease_id', 'in', leaseIds)
          .where('fence', 'is not', null)
          .$castTo<Signs>(),
      ),
  );
  return new Map(rows.map((row) => [row.lease_id, signsOf(row)]));
}

function signsOf({
  heartbeats,
  longest_silence_ms: ms,
  longest_silence_since: since,
}: Signs): HeartbeatStats {
  if (ms === null || since === null) return { heartbeats, longestSilence: null };
  const sinceMs = timeMs(since);
  return { heartbeats, longestSilence: { sinceMs, untilMs: sinceMs + ms } };
}
