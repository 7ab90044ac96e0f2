/** The longest that a job waits between attempts. */
const backoffMaxMs = 10 * 60 * 1000;

/**
 * How long a job waits before its next attempt: the base doubled with every attempt it has had, and up to a quarter
 * less, so that jobs which failed together do not come back together. `random` is from 0 to 1.
 */
export function backoffMs(baseS: number, attempts: number, random: number): number {
  // Beyond this many doublings any base has reached the limit, and the number would grow without bounds.
  const doublings = Math.min(Math.max(attempts - 1, 0), 20);
  return Math.round(Math.min(baseS * 1000 * 2 ** doublings, backoffMaxMs) * (1 - random / 4));
}

/** What is known when somebody has to be told to come back later. */
export interface RetryFacts {
  /** When the next lease, claim or backoff may end; null where nothing is under way. */
  nextDueMs: number | null;
  /** How many units, or jobs, are missing. */
  missing: number;
  /** How many of them have come free a second of late. */
  perSecond: number;
  /** How many askers were sent away in the last second. */
  asking: number;
}

const hintMinMs = 100;
/** With the jitter that comes on top, half a minute at the most. */
const hintMaxMs = 25_000;
const rateMin = 0.1;
/** Where nothing at all is known. */
const hintUnknownMs = 2_000;
/** Askers a second that the server takes without being worried. */
const askingMax = 500;

/**
 * When it is worth asking again: at the next event that is known of, or sooner where what is missing is likely to come free
 * at the rate it did of late. Many askers are spread over a longer time, and each gets a fifth more or less than the
 * next, so that they do not come back together.
 */
export function retryAfterMs({ nextDueMs, missing, perSecond, asking }: RetryFacts, random: number): number {
  // A rate that has nearly died away says less than knowing nothing.
  const expected = perSecond >= rateMin ? (missing / perSecond) * 1000 : Number.POSITIVE_INFINITY;
  const soonest = Math.min(expected, nextDueMs ?? Number.POSITIVE_INFINITY);
  const base = Number.isFinite(soonest) ? Math.max(soonest, hintMinMs) : hintUnknownMs;
  const spread = Math.min(base * Math.max(1, asking / askingMax), hintMaxMs);
  return Math.round(Math.max(spread * (0.8 + 0.4 * random), hintMinMs));
}

/**
 * How often a worker should send a heartbeat: two may be lost before the lease expires. A whole number, because clients of the
 * worker contract read it as one; with a TTL below 3 s fewer may be lost, and with 1 s none is early enough.
 */
export const heartbeatIntervalS = (ttlS: number): number => Math.max(1, Math.floor(ttlS / 3));
