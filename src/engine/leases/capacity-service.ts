/**
 * Reads, changes and audits the capacity. Each change is stored with its actor, and logged.
 *
 * The used units are counted in one locked row by each grant and each end of a lease. The service compares
 * them every `auditMs` with the sum over the active leases, in one snapshot. Only a bug or a manual change of
 * the database can cause a difference. It is repaired under the lock, and logged. Jobs that were set aside
 * because they cost more than the total capacity return to the queue when the total has changed.
 */

import type { AuditDraft } from '../../domain/access/audit.ts';
import { invalid, printable } from '../../domain/errors.ts';
import { type CapacityChange, capacityOf } from '../../domain/leases/capacity.ts';
import type { Capacity } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ListCapacityChanges, SetCapacity } from '../../domain/requests/scheduler.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import { recordAudit } from '../../store/sql/access/audit.ts';
import {
  auditCapacity,
  findCapacity,
  lockCapacity,
  reservedNow,
  takeUnits,
} from '../../store/sql/leases/capacity.ts';
import {
  changeCapacity,
  listCapacityChanges,
  pruneCapacityChanges,
} from '../../store/sql/leases/capacity-changes.ts';
import { unparkJobs } from '../../store/sql/queue/candidates.ts';
import { streamsOf } from '../../store/sql/streams/depths.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';
import { audited, detailOf } from '../access/audit/audited.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';

const auditMs = 60_000;
/** How often old changes are removed. */
const pruneMs = 60 * 60_000;
/** Jobs that return to the queue in one transaction. */
const unparkMax = 1_000;

export class CapacityService implements Service {
  readonly #context: EngineContext;
  readonly #log: Log;
  readonly #rounds: RoundMeter;
  #pruneAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<unknown> | undefined;

  constructor(context: EngineContext, log: Log) {
    this.#context = context;
    this.#log = log;
    this.#rounds = context.metrics.round('capacity_audit');
  }

  async get({ signal }: Caller): Promise<Capacity> {
    const { database, settings } = this.#context;
    const facts = await findCapacity(database, settings.capacityTotal, signal);
    return capacityOf({ ...facts, reserved: await reservedNow(database, signal) });
  }

  async set(command: SetCapacity, caller: Caller): Promise<Capacity> {
    const total = command.total ?? null;
    const busyRating = command.busy_rating ?? null;
    if (total === null && busyRating === null) throw invalid('total', 'is required, or busy_rating');
    const { database, publisher, settings } = this.#context;
    const { capacityTotal } = settings;
    const wish = {
      total,
      busyRating,
      requestedBy: command.requested_by ?? caller.peer,
      reason: command.reason ?? null,
    };
    const change = await database.transaction(async (sql) => {
      const changed = await changeCapacity(sql, wish, capacityTotal);
      if (changed) await recordAudit(sql, auditOf(changed, command, caller));
      return changed;
    }, caller.signal);
    if (change) {
      const { requestedBy, reason, before, after } = change;
      this.#log.info('the capacity was changed', { requestedBy, reason, before, after });
    }
    await this.#unpark();
    // How many jobs fit now is unknown; each request that is granted wakes the next.
    publisher.publish({ roomMade: 1 });
    return this.get(caller);
  }

  /** The changes with their actor and time, newest first. */
  async changes(command: ListCapacityChanges, { signal }: Caller): Promise<Page<CapacityChange>> {
    const limit = command.limit ?? limits.pageRowsDefault;
    const cursor = command.cursor || null;
    if (cursor !== null && !/^\d{1,18}$/.test(cursor))
      throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
    const found = await listCapacityChanges(this.#context.database, { cursor, limit: limit + 1 }, signal);
    const items = found.slice(0, limit);
    return { items, nextCursor: found.length > limit ? (items.at(-1)?.changeId ?? null) : null };
  }

  start(): void {
    if (this.#timer) return;
    const audit = () => {
      this.#round = this.#rounds
        .time(() => this.runOnce())
        .catch((error: unknown) => this.#log.warn('the capacity could not be audited', { error }));
    };
    audit();
    this.#timer = setInterval(audit, auditMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#round;
  }

  /** Compares, and repairs if needed. Returns by how many units the count was too high. */
  async runOnce(): Promise<number> {
    const { database, publisher } = this.#context;
    await this.#unpark();
    await this.#pruneOldChanges();
    const seen = await auditCapacity(database);
    if (seen.used === seen.leased) return 0;
    // Under the lock no transaction can change either side, so the repair is exact.
    const excess = await database.transaction(async (sql) => {
      await lockCapacity(sql, this.#context.settings.capacityTotal);
      const { used, leased } = await auditCapacity(sql);
      await takeUnits(sql, leased - used);
      return used - leased;
    });
    if (excess !== 0) {
      this.#log.error('the capacity in use was miscounted, and has been repaired', { excess });
      publisher.publish({ roomMade: 1 });
    }
    return excess;
  }

  /** Changes are kept as long as job events. */
  async #pruneOldChanges(): Promise<void> {
    const { database, settings } = this.#context;
    const now = performance.now();
    if (settings.retentionEventsDays === 0 || now < this.#pruneAt) return;
    this.#pruneAt = now + pruneMs;
    await pruneCapacityChanges(database, settings.retentionEventsDays);
  }

  async #unpark(): Promise<void> {
    const { database, settings, publisher } = this.#context;
    const { total } = await findCapacity(database, settings.capacityTotal);
    for (;;) {
      const jobIds = await unparkJobs(database, total, unparkMax);
      publisher.publish({ jobsReturned: await streamsOf(database, jobIds), jobsChanged: jobIds });
      if (jobIds.length < unparkMax) return;
    }
  }
}

const auditOf = (
  { before, after }: Pick<CapacityChange, 'before' | 'after'>,
  { requested_by, reason }: SetCapacity,
  caller: Caller,
): AuditDraft =>
  audited(caller, {
    action: 'capacity.set',
    target: 'capacity',
    requestedBy: requested_by,
    detail: detailOf({
      total: `${before.total}->${after.total}`,
      busy_rating: `${before.busyRating}->${after.busyRating}`,
      reason,
    }),
  });
