import { randomUUID } from 'node:crypto';
import { transition } from '../../domain/jobs/state-machine.ts';
import { capacityOf, noJobs } from '../../domain/leases/capacity.ts';
import type { Capacity, Grant } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { newId } from '../../lib/uuid.ts';
import type { Sql, TransactionSql } from '../../store/connection/sql.ts';
import { type CapacityNow, lockCapacityWith, takeUnits } from '../../store/sql/leases/capacity.ts';
import {
  findGrantsByRequest,
  grantLeases,
  grantNext,
  type LeaseSlot,
  type NewLease,
} from '../../store/sql/leases/grant.ts';
import { type LockedCandidate, lockCandidates } from '../../store/sql/queue/candidates.ts';
import type { HeadMarks } from '../../store/sql/queue/heads.ts';
import type { EngineSettings } from '../context/engine-context.ts';
import { type MatchResult, matchJobs } from './match-jobs.ts';

export interface AcquireCall {
  workerId: string;
  requestId: string | null;
  /** Which jobs suit. Calls of the same kind have the same filter. */
  requestClass: string;
  filter: ClaimFilter;
  /** The TTL of its leases, the same for all calls of a kind; null for that of the settings. */
  ttlS: number | null;
  /** How many jobs it takes, at the most. */
  count: number;
  /** They go out on a stream, and come back if they do not get there. */
  isStreamed: boolean;
  /** A look has found that there is nothing; the call comes for what its request was granted before. */
  precheck?: Denied | undefined;
}

/** What a call came to. Why there is nothing is said in words; when to ask again is found out for those who are told. */
export type Answer = Granted | Denied;
/** At least one. */
export interface Granted {
  kind: 'granted';
  grants: Grant[];
}
export interface Denied {
  kind: 'denied';
  reason: string;
  shortage: Shortage;
}

/** What there is too little of: jobs, of which some may be `barred` because the worker holds a lease, or units. */
export type Shortage = { jobs: number; barred: boolean } | { units: number };

export interface GrantOptions {
  settings: EngineSettings;
  /** Jobs of streams have messages. */
  keepsMessages: boolean;
  /** Whether a kind is most likely given out without anything to decide. */
  mayUseFastPath(kind: string): boolean;
  lowWaterMarks: HeadMarks;
  signal: AbortSignal | undefined;
}

/** Where the capacity comes from that is dealt: it is being locked, or has yet to be, with units that came free. */
export type CapacitySource = { locked: Promise<CapacityNow> } | { unitsFreed: number };

interface MatchInput {
  capacity: Capacity;
  found: readonly LockedCandidate[] | undefined;
  /** Nothing is asked of the transaction after this. */
  seals: boolean;
}

/** Jobs of a kind that are dealt in one transaction; there are never more calls than that. */
const grantsMax = 500;

/** A call, by what tells it from the others: the same request twice is one. */
interface Requester {
  name: string;
  call: AcquireCall;
}

/** Jobs of a kind that have to be put aside before it can be dealt, because they cost more than there is. */
export interface UnschedulableScan {
  filter: ClaimFilter;
  unique: boolean;
}

/**
 * The claims of one transaction. `replay` comes before anything else is locked, because it locks the requests; `deal`
 * comes last, because it locks the capacity, and then waits for nothing. Kinds are dealt to one after the other.
 */
export class GrantBatch {
  readonly #names: readonly string[];
  readonly #calls: readonly AcquireCall[];
  readonly #options: GrantOptions;
  readonly #answers = new Map<string, Answer>();
  /** What may be given out, once it is locked. */
  #capacity: Capacity | undefined;
  readonly unschedulableScans: UnschedulableScan[] = [];
  /** An earlier grant is the answer again. */
  hasReplays = false;
  /** A kind that was to be dealt plainly, and could not be. */
  fastPathMiss: string | undefined;

  constructor(calls: readonly AcquireCall[], how: GrantOptions) {
    this.#calls = calls;
    this.#names = calls.map(nameOf);
    this.#options = how;
  }

  /** In the order of the calls. Who has no answer asks again: there was more than one round may hold, or to be put aside. */
  get answers(): (Answer | undefined)[] {
    return this.#names.map((name) => this.#answers.get(name));
  }

  /** What the same worker was granted under the same request before and still holds is the answer again. */
  async replay(sql: Sql): Promise<void> {
    const requestIds = this.#calls.flatMap(({ requestId }) => requestId ?? []);
    if (requestIds.length === 0) return;
    for (const { requestId, grant } of await findGrantsByRequest(sql, requestIds, this.#options.signal)) {
      const { workerId } = grant.lease;
      this.hasReplays = true;
      this.#answers.set(nameOf({ workerId, requestId }, 0), { kind: 'granted', grants: [grant] });
    }
  }

  /**
   * Deals what the queue and the capacity allow, and carries it out. The capacity is being `locked` already, or it is
   * locked here, and gets the units that came free. Where it `isLast` to ask, the transaction is sealed with the last
   * statement.
   */
  async grant(sql: TransactionSql, from: CapacitySource, isLast: boolean): Promise<void> {
    const rounds = this.#requestClasses().map(roundRobin);
    const [first] = rounds;
    if (!first) {
      if ('unitsFreed' in from) await takeUnits(sql, -from.unitsFreed);
      else if (isLast) sql.seal();
      return;
    }
    const { signal } = this.#options;
    const { requestClass } = (first[0] as Requester).call;
    if (rounds.length === 1 && this.#options.mayUseFastPath(requestClass))
      return this.#grantFastPath(sql, first, from, isLast);
    // Sent right behind one another: the jobs are locked once the capacity is, and neither has to be waited for here.
    const locking = this.#lock(sql, from);
    const wanted = { count: first.length, unique: true, lowWaterMarks: this.#options.lowWaterMarks };
    const looking = lockCandidates(sql, (first[0] as Requester).call.filter, wanted, signal);
    const [locked, found] = await Promise.all([locking, looking]);
    this.#capacity = capacityOf({ ...locked, reserved: 0 });
    for (const [i, hands] of rounds.entries()) {
      const seals = isLast && i === rounds.length - 1;
      await this.#grantMatched(sql, hands, {
        capacity: this.#capacity,
        found: i === 0 ? found : undefined,
        seals,
      });
    }
  }

  #requestClasses(): (readonly Requester[])[] {
    const kinds = new Map<string, Map<string, Requester>>();
    for (const [i, call] of this.#calls.entries()) {
      const name = this.#names[i] as string;
      if (this.#answers.has(name)) continue;
      if (call.precheck) {
        this.#answers.set(name, call.precheck);
        continue;
      }
      const askers = kinds.get(call.requestClass) ?? new Map<string, Requester>();
      kinds.set(call.requestClass, askers.set(name, askers.get(name) ?? { name, call }));
    }
    return [...kinds.values()].map((askers) => [...askers.values()]);
  }

  /**
   * Without looking at what is there, in one journey: the database gives out the next jobs where nothing is to be decided
   * about them. Otherwise it gives out none, and whoever asked asks again.
   */
  async #grantFastPath(
    sql: TransactionSql,
    askers: readonly Requester[],
    from: CapacitySource,
    isLast: boolean,
  ): Promise<void> {
    const { settings, keepsMessages, lowWaterMarks, signal } = this.#options;
    const { capacityTotal: totalUnlessSet, leaseTtlS, heartbeatGraceS: graceS } = settings;
    const { filter, requestClass, ttlS: ttlAsked } = (askers[0] as Requester).call;
    const ttlS = ttlAsked ?? leaseTtlS;
    const locking = this.#lock(sql, from);
    const hands = askers.map(({ call }) => leaseSlotOf(call, leaseTtlS));
    const granting = grantNext(
      sql,
      hands,
      { filter, ttlS, graceS, keepsMessages, totalUnlessSet, lowWaterMarks: lowWaterMarks },
      signal,
    );
    if (isLast) sql.seal();
    const [, dealt] = await Promise.all([locking, granting]);
    if (dealt === 'judge') {
      this.fastPathMiss = requestClass;
      return;
    }
    const { grants, isAll } = dealt;
    for (const [i, { name }] of askers.entries()) {
      const grant = grants[i];
      if (grant) this.#addGrant(name, grant);
      else if (this.#answers.has(name)) continue;
      else if (isAll) this.#answers.set(name, denied(noJobs, { jobs: 1, barred: false }));
      // Whoever gets nothing from the marks on is judged, which looks from the front where they are not enough.
      else this.fastPathMiss = requestClass;
    }
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
    hands: readonly Requester[],
    { capacity, found, seals }: MatchInput,
  ): Promise<void> {
    const { filter } = (hands[0] as Requester).call;
    const workers = hands.map(({ call }) => call.workerId);
    const { lowWaterMarks, signal } = this.#options;
    const dealt = await matchJobs(sql, { filter, workers, capacity, lowWaterMarks, found }, signal);
    if (dealt.kind === 'park') this.unschedulableScans.push({ filter, unique: dealt.unique });
    else await this.#writeGrants(sql, hands, dealt, seals);
  }

  async #writeGrants(
    sql: TransactionSql,
    hands: readonly Requester[],
    { assignments, truncatedBySize, hasUnique }: MatchResult,
    seals: boolean,
  ): Promise<void> {
    const { settings, keepsMessages } = this.#options;
    const leases = assignments.flatMap((one, i) =>
      one?.kind === 'grant' ? newLease(one.jobId, (hands[i] as Requester).call, settings.leaseTtlS) : [],
    );
    const granting = grantLeases(sql, leases, {
      from: 'QUEUED',
      graceS: settings.heartbeatGraceS,
      keepsMessages,
    });
    if (seals) sql.seal();
    const granted = await granting;
    for (const [i, { name }] of hands.entries()) {
      const one = assignments[i];
      if (one?.kind === 'grant') this.#addGrant(name, this.#takeUnits(one.jobId, granted));
      // Who got anything does not have to know why it was not more.
      else if (this.#answers.has(name)) continue;
      else if (one) this.#answers.set(name, denied(one.reason, { units: one.missing }));
      else if (!truncatedBySize) this.#answers.set(name, denied(noJobs, { jobs: 1, barred: hasUnique }));
    }
  }

  /** A lease that was given, whose units the next kind cannot have. */
  #takeUnits(jobId: string, granted: ReadonlyMap<string, Grant>): Grant {
    const grant = granted.get(jobId);
    if (!grant || !this.#capacity) throw new Error(`job ${jobId} was locked and could not be leased`);
    const { used, available } = this.#capacity;
    const units = grant.job.costUnits;
    this.#capacity = { ...this.#capacity, used: used + units, available: available - units };
    return grant;
  }
}

/** Who gets which job: everybody a first one before anybody gets a second one. */
function roundRobin(askers: readonly Requester[]): readonly Requester[] {
  const hands: Requester[] = [];
  for (let turn = 0, left = askers; left.length > 0 && hands.length < grantsMax; turn++) {
    left = left.filter(({ call }) => call.count > turn);
    for (const asker of left) hands.push(asker);
  }
  return hands.length > grantsMax ? hands.slice(0, grantsMax) : hands;
}

/** What tells a call of a batch from the others; a call without a request is like no other. */
const nameOf = ({ workerId, requestId }: Pick<AcquireCall, 'workerId' | 'requestId'>, i: number): string =>
  requestId === null ? `#${i}` : JSON.stringify([workerId, requestId]);

export const denied = (reason: string, shortage: Shortage): Denied => ({ kind: 'denied', reason, shortage });

const newLease = (jobId: string, call: AcquireCall, ttlUnlessSaidS: number): NewLease => ({
  jobId,
  ...leaseSlotOf(call, ttlUnlessSaidS),
});

function leaseSlotOf(call: AcquireCall, ttlUnlessSaidS: number): LeaseSlot {
  const { workerId, requestId, filter, isStreamed } = call;
  return {
    leaseId: newId(),
    token: randomUUID(),
    workerId,
    requestId,
    state: transition(filter.streams === null && !isStreamed ? 'acquire' : 'acquire from stream').to,
    ttlS: call.ttlS ?? ttlUnlessSaidS,
    deliveryS: isStreamed ? limits.deliveryS : null,
  };
}
