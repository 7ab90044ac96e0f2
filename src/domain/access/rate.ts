/**
 * Rates by the generic cell rate algorithm. A bucket is one number: the time at which it is full again. Items
 * move that time ahead, and are refused while it lies further ahead than the burst takes to drain.
 */
export interface Rate {
  /** Items a second in the long run. */
  perS: number;
  /** Items that a full bucket admits at once. */
  burst: number;
}

/** A rate in items a second, with the items of `burstS` seconds as its burst; undefined for no limit. */
export const rateOf = (perS: number, burstS: number): Rate | undefined =>
  perS === 0 ? undefined : { perS, burst: Math.max(1, perS * burstS) };

/** A bucket that is full since ever. */
export const fullBucket = Number.NEGATIVE_INFINITY;

/** The bucket after the items were taken from it, whatever it held. */
export const charge = (fullAtMs: number, nowMs: number, items: number, { perS }: Rate): number =>
  Math.max(fullAtMs, nowMs) + (items * 1_000) / perS;

/**
 * How long the caller has to wait before the items are admitted; 0 admits them now. More items than the burst
 * are admitted by a full bucket alone, which then owes the rest.
 */
export function waitMs(fullAtMs: number, nowMs: number, items: number, rate: Rate): number {
  const ahead = charge(fullAtMs, nowMs, items, rate) - nowMs;
  const allowed = (Math.max(items, rate.burst) * 1_000) / rate.perS;
  // Times are large numbers: a rest below a thousandth of a millisecond is an error of rounding.
  return ahead - allowed < 0.001 ? 0 : ahead - allowed;
}
