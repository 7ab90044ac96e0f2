import { type Holder, holderOf, isHeldBy } from '../../domain/access/holder.ts';
import { offerOf } from '../../domain/jobs/constraints.ts';
import type { Job, JsonObject } from '../../domain/jobs/job.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { ClaimJobs } from '../../domain/requests/scheduler.ts';
import { abandoned, Batcher } from '../../lib/async/batcher.ts';
import { splitByLength } from '../../lib/split-by-length.ts';
import type { Sql } from '../../store/connection/sql.ts';
import {
  type ClaimRules,
  type ClaimSlot,
  type Claims,
  claimJobs,
  findClaimsByRequest,
} from '../../store/sql/jobs/claim.ts';
import { toJob } from '../../store/sql/jobs/record.ts';
import { lockCapacity } from '../../store/sql/leases/capacity.ts';
import type { ScanWindow } from '../../store/sql/queue/heads.ts';
import { restrictFilter } from '../access/restrict-filter.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';
import { parkUnschedulable } from '../dispatch/park-unschedulable.ts';
import { TenantUnits } from '../quotas/tenant-units.ts';

interface ClaimCall {
  workerId: string;
  holder: Holder;
  requestId: string | null;
  limit: number;
}

interface ParkingRules extends ClaimRules {
  /** Sets aside jobs that were found in this window and cost more than the total capacity. */
  park(window: ScanWindow): Promise<void>;
  /** Called after each statement that commits by itself, with the jobs that it claimed. */
  onClaimed?(jobIds: readonly string[]): void;
  /** Locks the capacity, and reads what tenants with a quota have left. */
  openTenants?(sql: Sql): Promise<TenantUnits>;
}

/** Maximum number of parking rounds in one claim; the next claim continues. */
const parkRoundsMax = 2;

/**
 * Claims jobs. Calls with the same filter share a batcher, and so one statement. Calls with different filters
 * do not delay each other. A batcher lives as long as a call waits in it. Jobs that cost
 * more than the total capacity are set aside, as for acquiring workers: a worker that claimed one would wait
 * for its lease forever.
 */
export class Claimer {
  readonly #context: EngineContext;
  readonly #batchers = new Map<string, Batcher<ClaimCall, Job[]>>();
  #closed = false;

  constructor(context: EngineContext) {
    this.#context = context;
  }

  async claim(command: ClaimJobs, { peer, principal, signal }: Caller): Promise<Job[]> {
    const { available, refused } = offerOf((command.constraints_capabilities ?? {}) as JsonObject);
    const types = command.accept_job_types ?? [];
    const filter = restrictFilter(principal, {
      streams: null,
      addonId: command.addon_id ?? null,
      jobTypes: types.length === 0 ? null : [...new Set(types)].sort(),
      maxCostUnits: command.max_cost_units ?? null,
      available,
      refused,
    });
    if (signal?.aborted) throw abandoned(signal);
    const key = JSON.stringify(filter);
    const workerId = command.worker_id;
    this.#context.metrics.noteIds({ worker_id: workerId });
    this.#context.workers.asks({ workerId, peer, kind: key, filter, mayWait: false });
    const call = {
      workerId,
      holder: holderOf(principal),
      requestId: command.request_id ?? null,
      limit: command.limit ?? 1,
    };
    return this.#batcherFor(key, filter).run(call, signal);
  }

  /** For how many filters claims are running. */
  get kinds(): number {
    return this.#batchers.size;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#batchers.values()].map((batcher) => batcher.close()));
  }

  #batcherFor(key: string, filter: ClaimFilter): Batcher<ClaimCall, Job[]> {
    const known = this.#batchers.get(key);
    if (known) return known;
    const batcher = new Batcher<ClaimCall, Job[]>({
      meter: this.#context.metrics.batch('claim'),
      flush: (calls, signal) => this.#flush(filter, calls, signal),
      sizeMax: limits.claimJobs,
      weigh: ({ limit }) => limit,
      weightMax: limits.claimJobs,
      waitingMax,
      onIdle: () => this.#batchers.delete(key),
    });
    if (this.#closed) void batcher.close();
    else this.#batchers.set(key, batcher);
    return batcher;
  }

  async #flush(
    filter: ClaimFilter,
    calls: readonly ClaimCall[],
    signal: AbortSignal | undefined,
  ): Promise<Job[][]> {
    const { database, outageMonitor, publisher, settings, lowWaterMarks, quotaBook } = this.#context;
    await outageMonitor.ensureFresh();
    const { capacityTotal } = settings;
    const claimTtlMs = settings.claimTtlS * 1000;
    const rules = { claimTtlMs, capacityTotal, lowWaterMarks };
    const park = (sql: Sql, window: ScanWindow) =>
      parkUnschedulable(sql, { filter, unique: true, window }, capacityTotal);
    const publishClaimed = (jobsChanged: readonly string[]) => {
      if (jobsChanged.length > 0) publisher.publish({ jobsChanged, nextDeadlineMs: claimTtlMs });
    };
    const unitTenants = quotaBook.unitTenantsOf([filter]);
    // The capacity row guards what tenants use.
    const openTenants = async (sql: Sql) => {
      await lockCapacity(sql, capacityTotal, signal);
      return TenantUnits.read(sql, unitTenants, signal);
    };
    const isOneTransaction = unitTenants.length > 0 || calls.some(({ requestId }) => requestId !== null);
    const answers = isOneTransaction
      ? await database.transaction((sql) => {
          const inTransaction = {
            ...rules,
            park: (window: ScanWindow) => park(sql, window),
            ...(unitTenants.length > 0 ? { openTenants } : {}),
          };
          return claimOrReplay(sql, filter, calls, inTransaction, signal);
        }, signal)
      : await claimAll(
          database,
          filter,
          calls,
          {
            ...rules,
            park: (window) => database.transaction((sql) => park(sql, window)),
            // Each of its statements commits by itself.
            onClaimed: publishClaimed,
          },
          signal,
        );
    if (isOneTransaction) {
      publishClaimed(answers.flat().map(({ jobId }) => jobId));
      await database.awaitStandby(signal);
    }
    return answers;
  }
}

/**
 * Claims jobs for the slots. If the claim meets jobs that can never be leased, they are set aside and it
 * continues.
 */
async function claimAndPark(
  sql: Sql,
  filter: ClaimFilter,
  slots: readonly ClaimSlot[],
  rules: ParkingRules,
  signal: AbortSignal | undefined,
): Promise<Claims> {
  let claims = await claimJobs(sql, filter, slots, rules, signal);
  const { records } = claims;
  rules.onClaimed?.(records.map(({ job_id }) => job_id));
  for (let parked = 0; claims.tooLarge && parked < parkRoundsMax; parked++) {
    const window = claims.tooLarge;
    await rules.park(window);
    claims = await claimJobs(sql, filter, slots.slice(records.length), { ...rules, window }, signal);
    rules.onClaimed?.(claims.records.map(({ job_id }) => job_id));
    records.push(...claims.records);
  }
  return { ...claims, records };
}

/**
 * One statement for all calls: each gets a run of slots, in the order of arrival. Further statements follow
 * only if unique jobs come next and one of the workers holds a lease.
 */
async function claimAll(
  sql: Sql,
  filter: ClaimFilter,
  calls: readonly ClaimCall[],
  rules: ParkingRules,
  signal: AbortSignal | undefined,
): Promise<Job[][]> {
  const answers: Job[][] = calls.map(() => []);
  const add = (i: number, jobs: readonly Job[]) => answers[i]?.push(...jobs);
  let open = [...calls.keys()];
  while (open.length > 0) {
    const limitOf = (i: number) => calls[i]?.limit ?? 0;
    const slots = open.flatMap((i) => slotsOf(calls[i] as ClaimCall));
    const { records, full, holders } = await claimAndPark(sql, filter, slots, rules, signal);
    const claimed = splitByLength(records.map(toJob), open.map(limitOf));
    for (const [n, i] of open.entries()) add(i, claimed[n] ?? []);
    if (holders) {
      // Unique jobs come next: first for the workers without a lease, then the other jobs for workers with
      // one.
      for (const passUnique of [false, true]) {
        const mine = open.filter((i) => holders.has(calls[i]?.workerId ?? '') === passUnique);
        const rest = mine.map((i) => {
          const call = calls[i] as ClaimCall;
          return { ...call, limit: call.limit - (answers[i]?.length ?? 0) };
        });
        const more =
          mine.length > 0 ? await claimAll(sql, filter, rest, { ...rules, passUnique }, signal) : [];
        for (const [n, i] of mine.entries()) add(i, more[n] ?? []);
      }
      break;
    }
    // An answer that reached the size limit is complete; a call that got nothing because of it is served
    // next.
    open = full ? open.filter((i) => answers[i]?.length === 0) : [];
  }
  return answers;
}

/** Claims what the quotas of tenants allow. */
async function claimWithin(
  sql: Sql,
  filter: ClaimFilter,
  calls: readonly ClaimCall[],
  rules: ParkingRules,
  signal: AbortSignal | undefined,
): Promise<Job[][]> {
  const tenants = await rules.openTenants?.(sql);
  const limited = tenants ? { lockCandidates: tenants.lockCandidates.bind(tenants) } : {};
  return claimAll(sql, filter, calls, { ...rules, ...limited }, signal);
}

const slotsOf = ({ workerId, holder, requestId, limit }: ClaimCall): ClaimSlot[] =>
  Array.from({ length: limit }, () => ({ workerId, holder, requestId }));

/**
 * Calls that carry a `request_id` are looked up first. Jobs that the same worker and holder claimed with it
 * and still have are returned again. The same request twice in one batch is one request.
 */
async function claimOrReplay(
  sql: Sql,
  filter: ClaimFilter,
  calls: readonly ClaimCall[],
  rules: ParkingRules,
  signal: AbortSignal | undefined,
): Promise<Job[][]> {
  const held = new Map<string, Job[]>();
  const found = Map.groupBy(await findClaimsByRequest(sql, calls, signal), ({ claimed_by, request_id }) =>
    JSON.stringify([claimed_by, request_id]),
  );
  const fresh = new Map<string, ClaimCall>();
  const names = calls.map((call, i) => {
    const { workerId, holder, requestId } = call;
    const name = requestId === null ? `#${i}` : JSON.stringify([workerId, holder, requestId]);
    const claims = found.get(JSON.stringify([workerId, requestId])) ?? [];
    const own = claims.filter((claim) => isHeldBy(claim.holder, holder));
    if (own.length > 0) held.set(name, own.map(toJob));
    if (!held.has(name) && !fresh.has(name)) fresh.set(name, call);
    return name;
  });
  const claimed = fresh.size > 0 ? await claimWithin(sql, filter, [...fresh.values()], rules, signal) : [];
  for (const [i, name] of [...fresh.keys()].entries()) held.set(name, claimed[i] ?? []);
  return names.map((name) => held.get(name) ?? []);
}
