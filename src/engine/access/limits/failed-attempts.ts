/**
 * Limits how often an address may send a call without a valid credential. A valid one is always let in, so
 * that a stranger behind the same proxy cannot lock others out.
 *
 * Failure modes: memory is bounded. Beyond `addressesMax` the address that failed first is forgotten.
 */
import { charge, fullBucket, type Rate, rateOf, waitMs } from '../../../domain/access/rate.ts';
import { DomainError } from '../../../domain/errors.ts';
import { networkOf } from '../../../lib/net/address-of.ts';
import { forgetOldest } from './rate-limiter.ts';

/** Addresses that are remembered. */
const addressesMax = 10_000;

export class FailedAttempts {
  readonly #rate: Rate | undefined;
  readonly #nowMs: () => number;
  /** When the bucket of each address is full again. */
  readonly #buckets = new Map<string, number>();

  /** `perS` attempts a second; 0 is no limit. `nowMs` is a clock that never goes back. */
  constructor(perS: number, burstS: number, nowMs: () => number = () => performance.now()) {
    this.#rate = rateOf(perS, burstS);
    this.#nowMs = nowMs;
  }

  get addresses(): number {
    return this.#buckets.size;
  }

  /** Counts a failed attempt. Returns the error for an address that has failed too often. */
  count(peer: string): DomainError | undefined {
    if (!this.#rate) return undefined;
    const now = this.#nowMs();
    const address = networkOf(peer);
    const bucket = this.#buckets.get(address) ?? fullBucket;
    const wait = waitMs(bucket, now, 1, this.#rate);
    if (wait > 0)
      return new DomainError(
        'rate_limited',
        `more than ${this.#rate.perS} calls a second without a valid credential from one address`,
        { retryAfterMs: Math.ceil(wait) },
      );
    if (bucket === fullBucket && this.#buckets.size >= addressesMax) forgetOldest(this.#buckets);
    this.#buckets.set(address, charge(bucket, now, 1, this.#rate));
    return undefined;
  }
}
