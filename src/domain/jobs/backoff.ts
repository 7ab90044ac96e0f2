/** The longest backoff between two attempts. */
const backoffMaxMs = 10 * 60 * 1000;

/**
 * The delay before a job's next attempt. The base doubles with every attempt the job has had. Up to a quarter
 * is subtracted at random, so that jobs that failed together are not retried together. `random` is from 0 to
 * 1.
 */
export function backoffMs(baseS: number, attempts: number, random: number): number {
  // After 20 doublings every base has reached the limit. The cap keeps the number from growing without
  // bounds.
  const doublings = Math.min(Math.max(attempts - 1, 0), 20);
  return Math.round(Math.min(baseS * 1000 * 2 ** doublings, backoffMaxMs) * (1 - random / 4));
}

/** Facts from which the retry hint of a denied request is estimated. */
export interface RetryFacts {
  /** When the next lease, claim or backoff may end; null where none is pending. */
  nextDueMs: number | null;
  /** How many units, or jobs, the request lacks. */
  missing: number;
  /** How many of them have become available per second lately. */
  perSecond: number;
  /** Requests denied in the last second. */
  asking: number;
}

const hintMinMs = 100;
/** At most 30 s with the jitter that is added. */
const hintMaxMs = 25_000;
const rateMin = 0.1;
/** Used where neither an event nor a rate is known. */
const hintUnknownMs = 2_000;
/** Denied requests per second above which hints are spread over a longer time. */
const askingMax = 500;

/**
 * When a denied request is worth repeating: at the next known event, or earlier where the missing units or
 * jobs are likely to become available at the recent rate. Many denied requests are spread over a longer time.
 * Each hint varies by up to a fifth, so that the requests do not return together.
 */
export function retryAfterMs({ nextDueMs, missing, perSecond, asking }: RetryFacts, random: number): number {
  // A rate that has nearly decayed to zero is a worse estimate than the default.
  const expected = perSecond >= rateMin ? (missing / perSecond) * 1000 : Number.POSITIVE_INFINITY;
  const soonest = Math.min(expected, nextDueMs ?? Number.POSITIVE_INFINITY);
  const base = Number.isFinite(soonest) ? Math.max(soonest, hintMinMs) : hintUnknownMs;
  const spread = Math.min(base * Math.max(1, asking / askingMax), hintMaxMs);
  return Math.round(Math.max(spread * (0.8 + 0.4 * random), hintMinMs));
}

/**
 * How often a worker should send a heartbeat: two may be lost before the lease expires. The interval is a
 * whole number, because clients of the worker contract read it as one. With a TTL below 3 s, fewer heartbeats
 * may be lost; with a TTL of 1 s, no heartbeat is early enough.
 */
export const heartbeatIntervalS = (ttlS: number): number => Math.max(1, Math.floor(ttlS / 3));
