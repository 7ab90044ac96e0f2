import { invalid, jobNotFound, leaseNotFound, printable } from '../../domain/errors.ts';
import type { Lease, LeaseWithJob } from '../../domain/leases/lease.ts';
import { lostError, wrongToken } from '../../domain/leases/lease-policy.ts';
import { limits } from '../../domain/limits.ts';
import type { ListLeases } from '../../domain/requests/scheduler.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import { readJobs } from '../../store/sql/jobs/read.ts';
import { listLeases } from '../../store/sql/leases/find.ts';
import { findLeasesByToken, readLeases } from '../../store/sql/leases/read.ts';
import { scopePatternsOf, workersSeenBy } from '../access/restrict-filter.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';

/** Maximum leases of one statement. */
const readsMax = 250;
const nobodysToken = '00000000-0000-0000-0000-000000000000';

/** Reads leases. Concurrent calls share a batch, because a worker may ask with every heartbeat. */
export class LeaseQueries {
  readonly #context: EngineContext;
  readonly #batcher: Batcher<string, LeaseWithJob>;
  readonly #finder: Batcher<{ jobId: string; token: string }, string>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher({
      meter: context.metrics.batch('read_leases'),
      flush: (leaseIds, signal) => this.#read(leaseIds, signal),
      sizeMax: readsMax,
      concurrencyMax: 2,
      waitingMax,
    });
    this.#finder = new Batcher<{ jobId: string; token: string }, string>({
      meter: context.metrics.batch('find_leases'),
      flush: async (wanted, signal) => {
        const found = await findLeasesByToken(context.database, wanted, signal);
        return wanted.map(({ jobId }, i) => {
          const leaseId = found[i];
          if (leaseId === undefined) return jobNotFound(jobId);
          return leaseId ?? lostError(wrongToken);
        });
      },
      sizeMax: readsMax,
      concurrencyMax: 2,
      waitingMax,
    });
  }

  /** Which lease of a job has this token, active or ended. */
  async leaseOf(jobId: string, token: string, { signal }: Caller): Promise<string> {
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    // A token that is not a UUID belongs to no lease. A valid id is looked up instead, so that both answers
    // are alike.
    const asked = isUuid(token) ? token.toLowerCase() : nobodysToken;
    return this.#finder.run({ jobId: jobId.toLowerCase(), token: asked }, signal);
  }

  async get(leaseId: string, { signal }: Caller): Promise<LeaseWithJob> {
    if (!isUuid(leaseId)) throw leaseNotFound(leaseId);
    return this.#batcher.run(leaseId.toLowerCase(), signal);
  }

  async list(command: ListLeases, { signal, principal }: Caller): Promise<Page<Lease>> {
    const limit = command.limit ?? limits.pageRowsDefault;
    const cursor = command.cursor || null;
    if (cursor !== null && !isUuid(cursor))
      throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
    const jobId = command.job_id || null;
    if (jobId !== null && !isUuid(jobId)) throw invalid('job_id', `must be a UUID, not ${printable(jobId)}`);
    const states = command.states ?? [];
    const leases = await listLeases(
      this.#context.database,
      {
        states: states.length === 0 ? null : states,
        workerId: command.worker_id ?? null,
        jobId,
        cursor,
        limit: limit + 1,
        scope: scopePatternsOf(principal),
        workers: workersSeenBy(principal),
      },
      signal,
    );
    const items = leases.slice(0, limit);
    return { items, nextCursor: leases.length > limit ? (items.at(-1)?.leaseId ?? null) : null };
  }

  async close(): Promise<void> {
    await this.#batcher.close();
    await this.#finder.close();
  }

  async #read(
    leaseIds: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<(LeaseWithJob | Error)[]> {
    const { database } = this.#context;
    const leases = await readLeases(database, [...new Set(leaseIds)], signal);
    const jobs = await readJobs(
      database,
      [...new Set([...leases.values()].map(({ lease }) => lease.jobId))],
      signal,
    );
    return leaseIds.map((leaseId) => {
      const known = leases.get(leaseId);
      if (!known) return leaseNotFound(leaseId);
      const { lease } = known;
      const job = jobs.get(lease.jobId)?.job;
      return job ? { lease, job } : jobNotFound(lease.jobId);
    });
  }
}
