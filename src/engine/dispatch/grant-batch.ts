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
  type Hand,
  type NewLease,
} from '../../store/sql/leases/grant.ts';
import { type LockedCandidate, lockCandidates } from '../../store/sql/queue/candidates.ts';
import type { HeadPlaces } from '../../store/sql/queue/heads.ts';
import type { EngineSettings } from '../context/engine-context.ts';
import { type Deal, judge } from './match-jobs.ts';

export interface AcquireCall {
  workerId: string;
  requestId: string | null;
  /** Which jobs suit. Calls of the same kind have the same filter. */
  kind: string;
  filter: ClaimFilter;
  /** The TTL of its leases, the same for all calls of a kind; null for that of the settings. */
  ttlS: number | null;
  /** How many jobs it takes, at the most. */
  count: number;
  /** They go out on a stream, and come back if they do not get there. */
  isStreamed: boolean;
  /** A look has found that there is nothing; the call comes for what its request was granted before. */
  outlook?: Denied | undefined;
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
  missing: Missing;
}

/** What there is too little of: jobs, of which some may be `barred` because the worker holds a lease, or units. */
export type Missing = { jobs: number; barred: boolean } | { units: number };

export interface Giving {
  settings: EngineSettings;
  /** Jobs of streams have messages. */
  keepsMessages: boolean;
  /** Whether a kind is most likely given out without anything to decide. */
  isPlain(kind: string): boolean;
  places: HeadPlaces;
  signal: AbortSignal | undefined;
}

/** Where the capacity comes from that is dealt: it is being locked, or has yet to be, with units that came free. */
export type CapacitySource = { locked: Promise<CapacityNow> } | { unitsFreed: number };

interface Dealing {
  capacity: Capacity;
  found: readonly LockedCandidate[] | undefined;
  /** Nothing is asked of the transaction after this. */
  seals: boolean;
}

/** Jobs of a kind that are dealt in one transaction; there are never more calls than that. */
const handsMax = 500;

/** A call, by what tells it from the others: the same request twice is one. */
interface Asker {
  name: string;
  call: AcquireCall;
}

/** Jobs of a kind that have to be put aside before it can be dealt, because they cost more than there is. */
export interface Parking {
  filter: ClaimFilter;
  unique: boolean;
}

/**
 * The claims of one transaction. `replay` comes before anything else is locked, because it locks the requests; `deal`
 * comes last, because it locks the capacity, and then waits for nothing. Kinds are dealt to one after the other.
 */
export class Given {
  readonly #names: readonly string[];
  readonly #calls: readonly AcquireCall[];
  readonly #how: Giving;
  readonly #found = new Map<string, Answer>();
  /** What may be given out, once it is locked. */
  #capacity: Capacity | undefined;
  readonly parkings: Parking[] = [];
  /** An earlier grant is the answer again. */
  hasReplays = false;
  /** A kind that was to be dealt plainly, and could not be. */
  unplainKind: string | undefined;

  constructor(calls: readonly AcquireCall[], how: Giving) {
    this.#calls = calls;
    this.#names = calls.map(nameOf);
    this.#how = how;
  }

  /** In the order of the calls. Who has no answer asks again: there was more than one round may hold, or to be put aside. */
  get answers(): (Answer | undefined)[] {
    return this.#names.map((name) => this.#found.get(name));
  }

  /** What the same worker was granted under the same request before and still holds is the answer again. */
  async replay(sql: Sql): Promise<void> {
    const requestIds = this.#calls.flatMap(({ requestId }) => requestId ?? []);
    if (requestIds.length === 0) return;
    for (const { requestId, grant } of await findGrantsByRequest(sql, requestIds, this.#how.signal)) {
      const { workerId } = grant.lease;
      this.hasReplays = true;
      this.#found.set(nameOf({ workerId, requestId }, 0), { kind: 'granted', grants: [grant] });
    }
  }

  /**
   * Deals what the queue and the capacity allow, and carries it out. The capacity is being `locked` already, or it is
   * locked here, and gets the units that came free. Where it `isLast` to ask, the transaction is sealed with the last
   * statement.
   */
  async deal(sql: TransactionSql, from: CapacitySource, isLast: boolean): Promise<void> {
    const rounds = this.#kinds().map(handsOf);
    const [first] = rounds;
    if (!first) {
      if ('unitsFreed' in from) await takeUnits(sql, -from.unitsFreed);
      else if (isLast) sql.seal();
      return;
    }
    const { signal } = this.#how;
    const { kind } = (first[0] as Asker).call;
    if (rounds.length === 1 && this.#how.isPlain(kind)) return this.#dealPlainly(sql, first, from, isLast);
    // Sent right behind one another: the jobs are locked once the capacity is, and neither has to be waited for here.
    const locking = this.#lock(sql, from);
    const wanted = { count: first.length, unique: true, places: this.#how.places };
    const looking = lockCandidates(sql, (first[0] as Asker).call.filter, wanted, signal);
    const [locked, found] = await Promise.all([locking, looking]);
    this.#capacity = capacityOf({ ...locked, reserved: 0 });
    for (const [i, hands] of rounds.entries()) {
      const seals = isLast && i === rounds.length - 1;
      await this.#dealTo(sql, hands, { capacity: this.#capacity, found: i === 0 ? found : undefined, seals });
    }
  }

  #kinds(): (readonly Asker[])[] {
    const kinds = new Map<string, Map<string, Asker>>();
    for (const [i, call] of this.#calls.entries()) {
      const name = this.#names[i] as string;
      if (this.#found.has(name)) continue;
      if (call.outlook) {
        this.#found.set(name, call.outlook);
        continue;
      }
      const askers = kinds.get(call.kind) ?? new Map<string, Asker>();
      kinds.set(call.kind, askers.set(name, askers.get(name) ?? { name, call }));
    }
    return [...kinds.values()].map((askers) => [...askers.values()]);
  }

  /**
   * Without looking at what is there, in one journey: the database gives out the next jobs where nothing is to be decided
   * about them. Otherwise it gives out none, and whoever asked asks again.
   */
  async #dealPlainly(
    sql: TransactionSql,
    askers: readonly Asker[],
    from: CapacitySource,
    isLast: boolean,
  ): Promise<void> {
    const { settings, keepsMessages, places, signal } = this.#how;
    const { capacityTotal: totalUnlessSet, leaseTtlS, heartbeatGraceS: graceS } = settings;
    const { filter, kind, ttlS: ttlAsked } = (askers[0] as Asker).call;
    const ttlS = ttlAsked ?? leaseTtlS;
    const locking = this.#lock(sql, from);
    const hands = askers.map(({ call }) => handOf(call, leaseTtlS));
    const granting = grantNext(
      sql,
      hands,
      { filter, ttlS, graceS, keepsMessages, totalUnlessSet, places },
      signal,
    );
    if (isLast) sql.seal();
    const [, dealt] = await Promise.all([locking, granting]);
    if (dealt === 'judge') {
      this.unplainKind = kind;
      return;
    }
    const { grants, isAll } = dealt;
    for (const [i, { name }] of askers.entries()) {
      const grant = grants[i];
      if (grant) this.#hand(name, grant);
      else if (this.#found.has(name)) continue;
      else if (isAll) this.#found.set(name, denied(noJobs, { jobs: 1, barred: false }));
      // Whoever gets nothing from the marks on is judged, which looks from the front where they are not enough.
      else this.unplainKind = kind;
    }
  }

  #lock(sql: Sql, from: CapacitySource): Promise<CapacityNow> {
    const { settings, signal } = this.#how;
    return 'locked' in from
      ? from.locked
      : lockCapacityWith(sql, settings.capacityTotal, from.unitsFreed, signal);
  }

  #hand(name: string, grant: Grant): void {
    const found = this.#found.get(name);
    if (found?.kind === 'granted') found.grants.push(grant);
    else this.#found.set(name, { kind: 'granted', grants: [grant] });
  }

  async #dealTo(
    sql: TransactionSql,
    hands: readonly Asker[],
    { capacity, found, seals }: Dealing,
  ): Promise<void> {
    const { filter } = (hands[0] as Asker).call;
    const workers = hands.map(({ call }) => call.workerId);
    const { places, signal } = this.#how;
    const dealt = await judge(sql, { filter, workers, capacity, places, found }, signal);
    if (dealt.kind === 'park') this.parkings.push({ filter, unique: dealt.unique });
    else await this.#carryOut(sql, hands, dealt, seals);
  }

  async #carryOut(
    sql: TransactionSql,
    hands: readonly Asker[],
    { dealt, isCut, hasUnique }: Deal,
    seals: boolean,
  ): Promise<void> {
    const { settings, keepsMessages } = this.#how;
    const leases = dealt.flatMap((one, i) =>
      one?.kind === 'grant' ? newLease(one.jobId, (hands[i] as Asker).call, settings.leaseTtlS) : [],
    );
    const granting = grantLeases(sql, leases, {
      from: 'QUEUED',
      graceS: settings.heartbeatGraceS,
      keepsMessages,
    });
    if (seals) sql.seal();
    const granted = await granting;
    for (const [i, { name }] of hands.entries()) {
      const one = dealt[i];
      if (one?.kind === 'grant') this.#hand(name, this.#take(one.jobId, granted));
      // Who got anything does not have to know why it was not more.
      else if (this.#found.has(name)) continue;
      else if (one) this.#found.set(name, denied(one.reason, { units: one.missing }));
      else if (!isCut) this.#found.set(name, denied(noJobs, { jobs: 1, barred: hasUnique }));
    }
  }

  /** A lease that was given, whose units the next kind cannot have. */
  #take(jobId: string, granted: ReadonlyMap<string, Grant>): Grant {
    const grant = granted.get(jobId);
    if (!grant || !this.#capacity) throw new Error(`job ${jobId} was locked and could not be leased`);
    const { used, available } = this.#capacity;
    const units = grant.job.costUnits;
    this.#capacity = { ...this.#capacity, used: used + units, available: available - units };
    return grant;
  }
}

/** Who gets which job: everybody a first one before anybody gets a second one. */
function handsOf(askers: readonly Asker[]): readonly Asker[] {
  const hands: Asker[] = [];
  for (let turn = 0, left = askers; left.length > 0 && hands.length < handsMax; turn++) {
    left = left.filter(({ call }) => call.count > turn);
    for (const asker of left) hands.push(asker);
  }
  return hands.length > handsMax ? hands.slice(0, handsMax) : hands;
}

/** What tells a call of a batch from the others; a call without a request is like no other. */
const nameOf = ({ workerId, requestId }: Pick<AcquireCall, 'workerId' | 'requestId'>, i: number): string =>
  requestId === null ? `#${i}` : JSON.stringify([workerId, requestId]);

export const denied = (reason: string, missing: Missing): Denied => ({ kind: 'denied', reason, missing });

const newLease = (jobId: string, call: AcquireCall, ttlUnlessSaidS: number): NewLease => ({
  jobId,
  ...handOf(call, ttlUnlessSaidS),
});

function handOf(call: AcquireCall, ttlUnlessSaidS: number): Hand {
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
