import type { Principal } from '../../domain/access/principal.ts';
import { jobNotFound, leaseNotFound } from '../../domain/errors.ts';
import { type Explanation, explain } from '../../domain/explain/explain.ts';
import type { ExplainFacts, StreamClosing, TenantShare } from '../../domain/explain/facts.ts';
import { closedAtMs } from '../../domain/explain/leases.ts';
import type { Job, JobWithResult } from '../../domain/jobs/job.ts';
import { capacityOf } from '../../domain/leases/capacity.ts';
import type { Lease } from '../../domain/leases/lease.ts';
import { demandFor } from '../../domain/workers/known-requests.ts';
import { isUuid } from '../../lib/uuid.ts';
import type { EntitySql } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import {
  eventWindow,
  leasesEndingNext,
  outagesSince,
  queuePosition,
  seeOneMoment,
} from '../../store/sql/explain/facts.ts';
import { findJob } from '../../store/sql/jobs/find.ts';
import { findCapacity } from '../../store/sql/leases/capacity.ts';
import { listLeases, readLifeSigns } from '../../store/sql/leases/find.ts';
import { readLeases } from '../../store/sql/leases/read.ts';
import { readUse } from '../../store/sql/quotas/quotas.ts';
import { readKnownRequests } from '../../store/sql/workers/known-requests.ts';
import { shownFacts } from '../access/shown.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import { hideNames } from './hide-names.ts';

/** Bounds of one explanation. The rest of a long history is in the job's events and attempts. */
const window = { first: 20, last: 180 };
const attemptsMax = 50;
const outagesMax = 50;
const endingMax = 5;

/**
 * Explains the state of a job or a lease. Everything is read by key or from the beginning of an index, in one
 * snapshot, so that the history agrees with the state.
 */
export class Explainer {
  readonly #context: EngineContext;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  async explainJob(jobId: string, { principal, signal }: Caller): Promise<Explanation> {
    this.#context.metrics.noteIds({ job_id: jobId });
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    return this.#read(async (sql) => {
      const nowMs = await seeOneMoment(sql);
      const found = await findJob(sql, jobId.toLowerCase(), signal);
      if (!found) throw jobNotFound(jobId);
      return this.#explain(sql, nowMs, { ...found, lease: null }, principal);
    }, signal);
  }

  async explainLease(leaseId: string, { principal, signal }: Caller): Promise<Explanation> {
    this.#context.metrics.noteIds({ lease_id: leaseId });
    if (!isUuid(leaseId)) throw leaseNotFound(leaseId);
    return this.#read(async (sql) => {
      const nowMs = await seeOneMoment(sql);
      const known = (await readLeases(sql, [leaseId], signal)).get(leaseId.toLowerCase());
      if (!known) throw leaseNotFound(leaseId);
      const { lease } = known;
      const found = await findJob(sql, lease.jobId, signal);
      if (!found) throw jobNotFound(lease.jobId);
      return this.#explain(sql, nowMs, { ...found, lease }, principal);
    }, signal);
  }

  #read<T>(work: (sql: EntitySql) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const database: Database = this.#context.database;
    return database.transaction(work, signal);
  }

  async #explain(
    sql: EntitySql,
    nowMs: number,
    { job, result, lease }: JobWithResult & { lease: Lease | null },
    principal: Principal,
  ): Promise<Explanation> {
    const { settings } = this.#context;
    const attempts = lease ? [lease] : await this.#attemptsOf(sql, job.jobId);
    const { place, demand } = await waitingOf(sql, job);
    const endingSoon = await leasesEndingNext(sql, endingMax);
    const facts: Omit<ExplainFacts, 'streamClosed'> = {
      nowMs,
      job,
      result,
      lease,
      events: await eventWindow(sql, job.jobId, lease?.leaseId ?? null, window),
      attempts,
      signs: await readLifeSigns(
        sql,
        attempts.map(({ leaseId }) => leaseId),
      ),
      outages: await outagesSince(sql, lease?.grantedAtMs ?? job.createdAtMs, outagesMax),
      // Claims do not reduce the free units, and summing them up would cost time.
      capacity: capacityOf({ ...(await findCapacity(sql, settings.capacityTotal)), reserved: 0 }),
      demand,
      ...(await hideNames(sql, { place, endingSoon }, principal)),
      tenant: await this.#tenantOf(sql, job),
    };
    const streamClosed = this.#closingOf(attempts.at(-1), nowMs);
    return explain(shownFacts(principal, { ...facts, streamClosed }));
  }

  async #tenantOf(sql: EntitySql, { addonId, state }: Job): Promise<TenantShare | null> {
    const maxUnits = this.#context.quotaBook.of(addonId)?.maxUnits ?? null;
    if (maxUnits === null || state !== 'QUEUED') return null;
    const use = (await readUse(sql, [addonId])).get(addonId);
    return { addonId, maxUnits, usedUnits: use?.units ?? 0 };
  }

  #closingOf(lease: Lease | undefined, nowMs: number): StreamClosing | null {
    if (lease?.state !== 'ACTIVE') return null;
    const closing = this.#context.leaseSubscriptions.lastDisconnectOf(lease.leaseId);
    const atMs = closing && closedAtMs(closing.agoMs, nowMs, lease.lastHeartbeatAtMs);
    return closing && atMs !== undefined ? { atMs, how: closing.how } : null;
  }

  async #attemptsOf(sql: EntitySql, jobId: string): Promise<Lease[]> {
    const filter = { states: null, workerId: null, jobId, cursor: null, limit: attemptsMax };
    return (await listLeases(sql, filter)).reverse();
  }
}

/** The position of a queued job, and what known workers would do with it. */
async function waitingOf(sql: EntitySql, job: Job): Promise<Pick<ExplainFacts, 'place' | 'demand'>> {
  const place = job.state === 'QUEUED' ? await queuePosition(sql, job.jobId) : null;
  if (!place) return { place, demand: null };
  const asks = await readKnownRequests(sql);
  return { place, demand: asks && demandFor(asks, { ...job, ...place }) };
}
