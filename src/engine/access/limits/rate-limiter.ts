/**
 * Limits how much each credential asks of this server. Items are counted, not calls, so that a batch takes as
 * much as single calls.
 *
 * Guarantees: a credential keeps its buckets when its secret is rotated. In each bucket the admitted items
 * never exceed the burst and the rate. A call that is refused takes nothing. Only the limits of this server
 * are known: N servers admit N times the rate.
 *
 * Failure modes: memory is bounded. Beyond `credentialsMax` the buckets that were used first are forgotten,
 * and begin full again.
 */
import type { Principal } from '../../../domain/access/principal.ts';
import { charge, fullBucket, type Rate, rateOf, waitMs } from '../../../domain/access/rate.ts';
import { DomainError } from '../../../domain/errors.ts';

/** What is counted apart: new work, questions and requests for work, and administration. */
export const rateBuckets = ['submit', 'read', 'admin'] as const;

export type RateBucket = (typeof rateBuckets)[number];

export interface RateSettings {
  /** Items a second for each credential; 0 is no limit. */
  rateSubmit: number;
  rateRead: number;
  /** For how many seconds of its rate a full bucket admits items at once. */
  rateBurstS: number;
}

/** Acts of administration a second for each credential. */
export const adminPerS = 100;

/** Credentials whose buckets are remembered. */
const credentialsMax = 20_000;

const nouns: Record<RateBucket, string> = {
  submit: 'jobs submitted or changed',
  read: 'items read or asked for',
  admin: 'acts of administration',
};

export class RateLimiter {
  readonly #settings: RateSettings;
  readonly #nowMs: () => number;
  /** For each credential, when each of its buckets is full again. */
  readonly #buckets = new Map<string, Record<RateBucket, number>>();

  /** `nowMs` is a clock that never goes back. */
  constructor(settings: RateSettings, nowMs: () => number = () => performance.now()) {
    this.#settings = settings;
    this.#nowMs = nowMs;
  }

  /** Takes the items, or throws `rate_limited` with the time after which they are admitted. */
  take(principal: Principal, bucket: RateBucket, items: number): void {
    const rate = this.#rateOf(principal, bucket);
    if (!rate || items === 0) return;
    const now = this.#nowMs();
    const buckets = this.#bucketsOf(principal);
    const wait = waitMs(buckets[bucket], now, items, rate);
    if (wait > 0)
      throw new DomainError(
        'rate_limited',
        `more than ${rate.perS} ${nouns[bucket]} a second; the credential may go on in ${Math.ceil(wait)} ms`,
        { retryAfterMs: Math.ceil(wait) },
      );
    buckets[bucket] = charge(buckets[bucket], now, items, rate);
  }

  /** Counts items that are known only after the call. They are never refused, and delay the next ones. */
  add(principal: Principal, bucket: RateBucket, items: number): void {
    const rate = this.#rateOf(principal, bucket);
    if (!rate || items <= 0) return;
    const buckets = this.#bucketsOf(principal);
    buckets[bucket] = charge(buckets[bucket], this.#nowMs(), items, rate);
  }

  #rateOf({ limits }: Principal, bucket: RateBucket): Rate | undefined {
    const { rateSubmit, rateRead, rateBurstS } = this.#settings;
    const burstS = limits.burstS ?? rateBurstS;
    if (bucket === 'submit') return rateOf(limits.submitPerS ?? rateSubmit, burstS);
    if (bucket === 'read') return rateOf(limits.readPerS ?? rateRead, burstS);
    return rateOf(adminPerS, rateBurstS);
  }

  #bucketsOf({ kind, id, holder }: Principal): Record<RateBucket, number> {
    const name = holder ?? `${kind} ${id}`;
    const known = this.#buckets.get(name);
    if (known) return known;
    if (this.#buckets.size >= credentialsMax) forgetOldest(this.#buckets);
    const buckets = { submit: fullBucket, read: fullBucket, admin: fullBucket };
    this.#buckets.set(name, buckets);
    return buckets;
  }
}

/** Removes the entry that was added first. */
export function forgetOldest(map: Map<string, unknown>): void {
  const [first] = map.keys();
  if (first !== undefined) map.delete(first);
}
