import { randomUUID } from 'node:crypto';
import { isHeldBy } from '../../domain/access/holder.ts';
import { transition } from '../../domain/jobs/state-machine.ts';
import { capacityOf, noJobs } from '../../domain/leases/capacity.ts';
import type { Capacity, Grant } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { newId } from '../../lib/uuid.ts';
import type { Sql, TransactionSql } from '../../store/connection/sql.ts';
import { type CapacityNow, lockCapacityWith, takeUnits } from '../../store/sql/leases/capacity.ts';
import { findGrantsByRequest } from '../../store/sql/leases/find-grants.ts';
import { grantLeases, grantNext, type LeaseSlot, type NewLease } from '../../store/sql/leases/grant.ts';
import { type LockedCandidates, lockCandidates } from '../../store/sql/queue/candidates.ts';
import {
  firstWindow,
  type HeadMarks,
  noMarks,
  type ScanWindow,
  widerWindow,
} from '../../store/sql/queue/heads.ts';
import type { EngineSettings } from '../context/engine-context.ts';
import { TenantUnits, tenantsFull } from '../quotas/tenant-units.ts';
import { type AcquireCall, type AcquireResult, type Answer, again, denied } from './acquire-call.ts';
import { type MatchResult, matchJobs } from './match-jobs.ts';

export interface GrantOptions {
  settings: EngineSettings;
  /** Jobs of streams have messages. */
  keepsMessages: boolean;
  /** Whether a request class can most likely be granted without decisions about single jobs. */
  mayUseFastPath(requestClass: string): boolean;
  lowWaterMarks: HeadMarks;
  /** The tenants with a quota of units whose jobs the calls may find. */
  unitTenants: readonly string[];
  signal: AbortSignal | undefined;
}

/**
 * The source of the capacity: its row is being locked already, or is to be locked, with units that were
 * freed.
 */
export type CapacitySource = { locked: Promise<CapacityNow> } | { unitsFreed: number };

interface MatchInput {
  capacity: Capacity;
  window: ScanWindow;
  found: LockedCandidates | undefined;
  /** The units that tenants have left, if some of them have a quota. */
  tenants?: TenantUnits;
  /** No further statement of the transaction follows. */
  seals: boolean;
}

/** Maximum jobs of a request class in one transaction; a batch never has more calls than that. */
const grantsMax = 500;

/** A call under its identity: two calls of the same request are one requester. */
interface Requester {
  name: string;
  call: AcquireCall;
}

/**
 * Jobs that cost more than the total capacity, and must be set aside before their request class can be
 * served.
 */
export interface UnschedulableScan {
  filter: ClaimFilter;
  unique: boolean;
  /** Where they were found. */
  window: ScanWindow;
}

/**
 * The lease requests of one transaction. `replay` comes before any other lock, because it locks the requests.
 * `grant` comes last, because it locks the capacity; after that it waits for no lock. Request classes are
 * served one after the other.
 */
export class GrantBatch {
  readonly #names: readonly string[];
  readonly #calls: readonly AcquireCall[];
  readonly #options: GrantOptions;
  readonly #answers = new Map<string, Answer>();
  /** Where repeated calls search, by request class. */
  readonly #windows = new Map<string, ScanWindow>();
  /** The available capacity, once its row is locked. */
  #capacity: Capacity | undefined;
  readonly unschedulableScans: UnschedulableScan[] = [];
  /** An earlier grant was returned again. */
  hasReplays = false;
  /** A request class that the fast path could not serve. */
  fastPathMiss: string | undefined;

  constructor(calls: readonly AcquireCall[], how: GrantOptions) {
    this.#calls = calls;
    this.#names = calls.map(nameOf);
    this.#options = how;
  }

  /** In the order of the calls. */
  get answers(): AcquireResult[] {
    return this.#calls.map((call, i) => {
      const answer = this.#answers.get(this.#names[i] as string);
      return answer ?? again({ ...call, window: this.#windows.get(call.requestClass) ?? call.window });
    });
  }

  /** Returns earlier grants: those of the same worker, holder and request that are still active. */
  async replay(sql: Sql): Promise<void> {
    const requestIds = this.#calls.flatMap(({ requestId }) => requestId ?? []);
    if (requestIds.length === 0) return;
    const found = await findGrantsByRequest(sql, requestIds, this.#options.signal);
    if (found.length === 0) return;
    const callsByRequest = Map.groupBy(this.#calls.entries(), ([, { requestId }]) => requestId);
    for (const { requestId, holder, grant } of found) {
      for (const [i, call] of callsByRequest.get(requestId) ?? []) {
        if (call.workerId !== grant.lease.workerId || !isHeldBy(holder, call.holder)) continue;
        this.hasReplays = true;
        this.#answers.set(this.#names[i] as string, { kind: 'granted', grants: [grant] });
      }
    }
  }

  /**
   * Grants what the queue and the capacity allow. The capacity row is being `locked` already; otherwise it is
   * locked here and gets the freed units. If this `isLast`, the transaction is sealed with the last
   * statement.
   */
  async grant(sql: TransactionSql, from: CapacitySource, isLast: boolean): Promise<void> {
    const slotsByClass = this.#requestClasses().map(roundRobin);
    const [first] = slotsByClass;
    if (!first) {
      if ('unitsFreed' in from) await takeUnits(sql, -from.unitsFreed);
      else if (isLast) sql.seal();
      return;
    }
    const { signal, unitTenants } = this.#options;
    if (unitTenants.length > 0) return this.#grantWithinQuotas(sql, slotsByClass, from);
    const { requestClass, filter } = (first[0] as Requester).call;
    const isRepeated = first.some(({ call }) => call.window !== undefined);
    if (slotsByClass.length === 1 && !isRepeated && this.#options.mayUseFastPath(requestClass))
      return this.#grantFastPath(sql, first, from, isLast);
    // The two statements are pipelined. The jobs are locked after the capacity, and neither result is awaited
    // in between.
    const lockingCapacity = this.#lock(sql, from);
    const wanted = { count: first.length, unique: true, window: this.#windowOf(first) };
    const lockingCandidates = lockCandidates(sql, filter, wanted, signal);
    const [locked, found] = await Promise.all([lockingCapacity, lockingCandidates]);
    this.#capacity = capacityOf({ ...locked, reserved: 0 });
    for (const [i, slots] of slotsByClass.entries()) {
      const seals = isLast && i === slotsByClass.length - 1;
      await this.#grantMatched(sql, slots, {
        capacity: this.#capacity,
        window: this.#windowOf(slots),
        found: i === 0 ? found : undefined,
        seals,
      });
    }
  }

  /** Grants what the quotas of tenants allow. The capacity row also guards their use. */
  async #grantWithinQuotas(
    sql: TransactionSql,
    slotsByClass: readonly (readonly Requester[])[],
    from: CapacitySource,
  ): Promise<void> {
    const { unitTenants, signal } = this.#options;
    this.#capacity = capacityOf({ ...(await this.#lock(sql, from)), reserved: 0 });
    const tenants = await TenantUnits.read(sql, unitTenants, signal);
    for (const slots of slotsByClass) {
      const input = { capacity: this.#capacity, window: this.#windowOf(slots), found: undefined };
      await this.#grantMatched(sql, slots, { ...input, tenants, seals: false });
    }
  }

  /** The requesters without an answer, by request class. */
  #requestClasses(): (readonly Requester[])[] {
    const byClass = new Map<string, Map<string, Requester>>();
    for (const [i, call] of this.#calls.entries()) {
      const name = this.#names[i] as string;
      if (this.#answers.has(name)) continue;
      if (call.precheck) {
        this.#answers.set(name, call.precheck);
        continue;
      }
      const requesters = byClass.get(call.requestClass) ?? new Map<string, Requester>();
      byClass.set(call.requestClass, requesters.set(name, requesters.get(name) ?? { name, call }));
    }
    return [...byClass.values()].map((requesters) => [...requesters.values()]);
  }

  /**
   * Grants without reading the queue first, in one round trip. The database grants the next jobs if all fit
   * and none is unique. Otherwise it grants none, and the calls are repeated.
   */
  async #grantFastPath(
    sql: TransactionSql,
    slots: readonly Requester[],
    from: CapacitySource,
    isLast: boolean,
  ): Promise<void> {
    const { settings, keepsMessages, lowWaterMarks, signal } = this.#options;
    const { capacityTotal: totalUnlessSet, leaseTtlS, heartbeatGraceS: graceS } = settings;
    const { filter, requestClass, ttlS: ttlAsked } = (slots[0] as Requester).call;
    const ttlS = ttlAsked ?? leaseTtlS;
    const locking = this.#lock(sql, from);
    const leaseSlots = slots.map(({ call }) => leaseSlotOf(call, leaseTtlS));
    const granting = grantNext(
      sql,
      leaseSlots,
      { filter, ttlS, graceS, keepsMessages, totalUnlessSet, lowWaterMarks },
      signal,
    );
    if (isLast) sql.seal();
    const [, result] = await Promise.all([locking, granting]);
    if (result === 'needs decision') {
      this.fastPathMiss = requestClass;
      this.#windows.set(requestClass, firstWindow(lowWaterMarks));
      return;
    }
    const { grants, isAll } = result;
    for (const [i, { name }] of slots.entries()) {
      const grant = grants[i];
      if (grant) this.#addGrant(name, grant);
      else if (this.#answers.has(name)) continue;
      else if (isAll) this.#answers.set(name, denied(noJobs, { jobs: 1, barred: false }));
      else {
        // The fast path searched only behind the low-water marks.
        this.fastPathMiss = requestClass;
        this.#windows.set(requestClass, firstWindow(noMarks));
      }
    }
  }

  /** Where to search for a request class: at least as far as each of its calls must. */
  #windowOf(requesters: readonly Requester[]): ScanWindow {
    const repeated = requesters.reduce<ScanWindow | undefined>(
      (window, { call }) => widerWindow(window, call.window),
      undefined,
    );
    return repeated ?? firstWindow(this.#options.lowWaterMarks);
  }

  #lock(sql: Sql, from: CapacitySource): Promise<CapacityNow> {
    const { settings, signal } = this.#options;
    return 'locked' in from
      ? from.locked
      : lockCapacityWith(sql, settings.capacityTotal, from.unitsFreed, signal);
  }

  #addGrant(name: string, grant: Grant): void {
    const found = this.#answers.get(name);
    if (found?.kind === 'granted') found.grants.push(grant);
    else this.#answers.set(name, { kind: 'granted', grants: [grant] });
  }

  async #grantMatched(
    sql: TransactionSql,
    slots: readonly Requester[],
    { capacity, window, found, tenants, seals }: MatchInput,
  ): Promise<void> {
    const { filter } = (slots[0] as Requester).call;
    const workers = slots.map(({ call }) => call.workerId);
    const lock = tenants?.lockCandidates.bind(tenants);
    const input = { filter, workers, capacity, window, found, lock };
    const matched = await matchJobs(sql, input, this.#options.signal);
    if (matched.kind === 'park') this.unschedulableScans.push({ filter, unique: matched.unique, window });
    else await this.#writeGrants(sql, slots, matched, { seals, isBlocked: tenants?.hasBlocked ?? false });
  }

  async #writeGrants(
    sql: TransactionSql,
    slots: readonly Requester[],
    { assignments, next, hasUnique }: MatchResult,
    { seals, isBlocked }: { seals: boolean; isBlocked: boolean },
  ): Promise<void> {
    const { settings, keepsMessages } = this.#options;
    const leases = assignments.flatMap((one, i) =>
      one?.kind === 'grant' ? newLease(one.jobId, (slots[i] as Requester).call, settings.leaseTtlS) : [],
    );
    const granting = grantLeases(sql, leases, {
      from: 'QUEUED',
      graceS: settings.heartbeatGraceS,
      keepsMessages,
    });
    if (seals) sql.seal();
    const granted = await granting;
    for (const [i, { name }] of slots.entries()) {
      const one = assignments[i];
      if (one?.kind === 'grant') this.#addGrant(name, this.#takeUnits(one.jobId, granted));
      // A call that got at least one job needs no reason for the rest.
      else if (this.#answers.has(name)) continue;
      else if (one) this.#answers.set(name, denied(one.reason, { units: one.missing }));
      else if (!next && isBlocked) this.#answers.set(name, denied(tenantsFull, { jobs: 1, barred: true }));
      else if (!next) this.#answers.set(name, denied(noJobs, { jobs: 1, barred: hasUnique }));
    }
    if (next) this.#windows.set((slots[0] as Requester).call.requestClass, next);
  }

  /** Takes the units of a new lease from the capacity that is left for the next request class. */
  #takeUnits(jobId: string, granted: ReadonlyMap<string, Grant>): Grant {
    const grant = granted.get(jobId);
    if (!grant || !this.#capacity) throw new Error(`job ${jobId} was locked and could not be leased`);
    const { used, available } = this.#capacity;
    const units = grant.job.costUnits;
    this.#capacity = { ...this.#capacity, used: used + units, available: available - units };
    return grant;
  }
}

/** The requester of each lease slot: each gets a first slot before any gets a second one. */
function roundRobin(requesters: readonly Requester[]): readonly Requester[] {
  const slots: Requester[] = [];
  for (let turn = 0, left = requesters; left.length > 0 && slots.length < grantsMax; turn++) {
    left = left.filter(({ call }) => call.count > turn);
    for (const requester of left) slots.push(requester);
  }
  return slots.length > grantsMax ? slots.slice(0, grantsMax) : slots;
}

/** The identity of a call within its batch; a call without a request id is unique. */
const nameOf = ({ workerId, holder, requestId }: AcquireCall, i: number): string =>
  requestId === null ? `#${i}` : JSON.stringify([workerId, holder, requestId]);

const newLease = (jobId: string, call: AcquireCall, ttlUnlessSaidS: number): NewLease => ({
  jobId,
  ...leaseSlotOf(call, ttlUnlessSaidS),
});

function leaseSlotOf(call: AcquireCall, ttlUnlessSaidS: number): LeaseSlot {
  const { workerId, holder, requestId, filter, isStreamed } = call;
  return {
    leaseId: newId(),
    token: randomUUID(),
    workerId,
    holder,
    requestId,
    state: transition(filter.streams === null && !isStreamed ? 'acquire' : 'acquire from stream').to,
    ttlS: call.ttlS ?? ttlUnlessSaidS,
    deliveryS: isStreamed ? limits.deliveryS : null,
  };
}
