import { invalid, printable } from '../../domain/errors.ts';
import { queuedCauses } from '../../domain/explain/job.ts';
import { capacityOf } from '../../domain/leases/capacity.ts';
import { limits } from '../../domain/limits.ts';
import type { QueueGroup } from '../../domain/queue/queue-group.ts';
import type { GetQueue } from '../../domain/requests/stats.ts';
import { demandFor, type KnownRequest, suits } from '../../domain/workers/known-requests.ts';
import type { EntitySql } from '../../store/connection/sql.ts';
import { leasesEndingNext, queuePosition, seeOneMoment } from '../../store/sql/explain/facts.ts';
import { findCapacity } from '../../store/sql/leases/capacity.ts';
import { type AskingWorker, readAskingWorkers, readQueueGroups } from '../../store/sql/queue/groups.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';
import type { WorkerDirectory } from '../workers/worker-directory.ts';

export interface QueuePage extends Page<QueueGroup & { laneId: number }> {
  /** Time of the reading, by the database's clock. */
  nowMs: number;
  /** More jobs are delayed, claimed or running than were counted. */
  isCut: boolean;
}

/**
 * Reads waiting and running jobs in groups. Each group has its oldest job, the workers that ask for it, and
 * the main cause that `explain` gives for it. One snapshot is read.
 */
export class QueueQueries {
  readonly #context: EngineContext;
  readonly #directory: WorkerDirectory;

  constructor(context: EngineContext, directory: WorkerDirectory) {
    this.#context = context;
    this.#directory = directory;
  }

  async get(command: GetQueue, { signal }: Caller): Promise<QueuePage> {
    const limit = command.limit ?? limits.queueGroupsDefault;
    const cursor = command.cursor || '0';
    if (!/^\d{1,9}$/.test(cursor)) throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
    await this.#directory.flush();
    return this.#context.database.transaction(async (sql) => {
      const nowMs = await seeOneMoment(sql);
      const { groups: found, isCut } = await readQueueGroups(sql, Number(cursor), limit + 1, signal);
      const groups = found.slice(0, limit);
      const workers = await readAskingWorkers(sql, signal);
      for (const group of groups) group.asking = workers && askingFor(group, workers);
      const asks = workers?.flatMap((worker) => worker.asks) ?? null;
      await this.#explain(sql, { nowMs, asks }, groups, signal);
      const nextCursor = found.length > limit ? String(groups.at(-1)?.laneId) : null;
      return { items: groups, nextCursor, nowMs, isCut };
    }, signal);
  }

  async #explain(
    sql: EntitySql,
    { nowMs, asks }: { nowMs: number; asks: readonly KnownRequest[] | null },
    groups: readonly QueueGroup[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (groups.every(({ oldest }) => oldest === null)) return;
    const { settings } = this.#context;
    const capacity = capacityOf({
      ...(await findCapacity(sql, settings.capacityTotal, signal)),
      reserved: 0,
    });
    const endingSoon = await leasesEndingNext(sql, 1);
    for (const group of groups) {
      const { oldest, jobType, stream, isUnique: unique } = group;
      const place = oldest && (await queuePosition(sql, oldest.jobId));
      if (!oldest || !place) continue;
      // The job is ready or set aside, so it waits for no time, whatever happened before.
      const job = { ...oldest, jobType, stream, unique, attempts: 0, nextRetryAtMs: null, runAtMs: null };
      const demand = asks && demandFor(asks, { ...group, costUnits: oldest.costUnits });
      oldest.cause = queuedCauses({ job, nowMs, capacity, endingSoon, demand }, place)[0] ?? null;
    }
  }
}

function askingFor(group: QueueGroup, workers: readonly AskingWorker[]): QueueGroup['asking'] {
  const job = { ...group, costUnits: group.oldest?.costUnits ?? 0 };
  const asking = new Set<string>();
  let slots = 0;
  for (const { workerId, asks } of workers) {
    for (const ask of asks) {
      if (!suits(ask, job)) continue;
      asking.add(workerId);
      slots += ask.jobs;
    }
  }
  return { workers: asking.size, slots };
}
