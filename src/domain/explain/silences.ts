import type { Job } from '../jobs/job.ts';
import type { Lease } from '../leases/lease.ts';
import { span } from '../time.ts';

/** A time without a heartbeat of a worker: from a grant or a heartbeat to the next event. */
export interface Silence {
  sinceMs: number;
  untilMs: number;
}

/** Heartbeat statistics of a lease, as each heartbeat stores them. */
export interface HeartbeatStats {
  /** Null before the first heartbeat, and where a version that did not count heartbeats renewed the lease. */
  heartbeats: number | null;
  /** The longest silence that a heartbeat ended; null where there is none, or where it is not known. */
  longestSilence: Silence | null;
}

/** Heartbeat statistics of an attempt, from all known facts. */
export interface AttemptHeartbeats {
  /** Null where a version that did not count heartbeats renewed the lease. */
  heartbeats: number | null;
  /** The longest silence that did not end the lease; null where there is none, or where it is not known. */
  longestSilence: Silence | null;
  /** The longest silence that a heartbeat ended, which is the closest that the lease came to its expiry. */
  survived: Silence | null;
}

/** Shorter silences, as a share of the TTL, are normal: many workers send a heartbeat every half TTL. */
const longSilence = 0.5;

/**
 * A silence of this share of the TTL nearly lost the lease. It is longer than that of a worker that sends a
 * heartbeat every third of the TTL and misses one.
 */
const nearLoss = 0.75;

export const lengthMs = ({ sinceMs, untilMs }: Silence): number => Math.max(0, untilMs - sinceMs);

/** The share of the lease's TTL that a silence took; above 1 where the lease was extended beyond its TTL. */
export const ttlShare = (silence: Silence, { ttlS }: Pick<Lease, 'ttlS'>): number =>
  lengthMs(silence) / (ttlS * 1000);

export const isLong = (silence: Silence, lease: Lease): boolean => ttlShare(silence, lease) >= longSilence;

export const wasNearLoss = (silence: Silence, lease: Lease): boolean => ttlShare(silence, lease) >= nearLoss;

/**
 * Whether a heartbeat came after the grant. The grant itself sets `lastHeartbeatAtMs` first. A first
 * heartbeat in the millisecond of the grant, or after the clock was set back, is not later than the grant,
 * but it is counted.
 */
export const wasHeard = (
  { lastHeartbeatAtMs, grantedAtMs }: Lease,
  { heartbeats }: Pick<AttemptHeartbeats, 'heartbeats'>,
): boolean => (heartbeats === null ? lastHeartbeatAtMs > grantedAtMs : heartbeats > 0);

/**
 * No heartbeat extends a lease beyond `max_runtime_s`, so a lease that lasted that long could not be renewed.
 */
export const isOverMaxRuntime = (
  { expiresAtMs, grantedAtMs }: Lease,
  { maxRuntimeS }: Pick<Job, 'maxRuntimeS'>,
): boolean => maxRuntimeS !== null && expiresAtMs >= grantedAtMs + maxRuntimeS * 1000;

/** From the last heartbeat, or the grant, to the end of the lease or to now. */
export const lastSilence = (lease: Lease, nowMs: number): Silence => ({
  sinceMs: lease.lastHeartbeatAtMs,
  untilMs: lease.state === 'ACTIVE' ? Math.floor(nowMs) : (lease.endedAtMs ?? lease.expiresAtMs),
});

/**
 * Combines the stored statistics, which end at the last heartbeat, with the silence after it.
 * - A silence by which the lease expired is excluded, because it is reported as the cause. It may be shorter
 *   than an earlier one that the lease survived because an outage was compensated.
 * - A lease over its `max_runtime_s` did not end by a silence, so its last silence counts up to its end.
 */
export function allSigns(
  lease: Lease,
  job: Pick<Job, 'maxRuntimeS'>,
  stored: HeartbeatStats | undefined,
  nowMs: number,
): AttemptHeartbeats {
  const { heartbeats: counted, longestSilence: survived } = ofThisAttempt(lease, stored);
  const heartbeats = counted ?? (lease.lastHeartbeatAtMs > lease.grantedAtMs ? null : 0);
  if (heartbeats === null) return { heartbeats, longestSilence: null, survived: null };
  const isOverdue = lease.state === 'ACTIVE' && nowMs >= lease.expiresAtMs;
  const ranOut = isOverdue || lease.state === 'EXPIRED';
  if (ranOut && !isOverMaxRuntime(lease, job)) return { heartbeats, longestSilence: survived, survived };
  const last = lastSilence(lease, isOverdue ? lease.expiresAtMs : nowMs);
  const longestSilence = survived && lengthMs(survived) >= lengthMs(last) ? survived : last;
  return { heartbeats, longestSilence, survived };
}

const none: HeartbeatStats = { heartbeats: null, longestSilence: null };

/**
 * A server of the previous version grants a job again without clearing the statistics of the lease before. A
 * silence that began before the grant reveals that, unless the clock was set back: then heartbeats precede
 * the grant as well.
 */
function ofThisAttempt(
  { grantedAtMs, lastHeartbeatAtMs }: Lease,
  stored: HeartbeatStats | undefined,
): HeartbeatStats {
  const sinceMs = stored?.longestSilence?.sinceMs ?? grantedAtMs;
  const isOfOneBefore = sinceMs < grantedAtMs && lastHeartbeatAtMs >= grantedAtMs;
  return stored && !isOfOneBefore ? stored : none;
}

/** Measured from the grant, in whole milliseconds; null where no heartbeat later than the grant is known. */
export const meanIntervalMs = (
  { lastHeartbeatAtMs, grantedAtMs }: Lease,
  { heartbeats }: Pick<AttemptHeartbeats, 'heartbeats'>,
): number | null =>
  heartbeats === null || heartbeats === 0 || lastHeartbeatAtMs <= grantedAtMs
    ? null
    : Math.round((lastHeartbeatAtMs - grantedAtMs) / heartbeats);

/** `48 s, 80 % of its TTL`. */
export const silenceWords = (silence: Silence, lease: Lease, after = ''): string =>
  `${span(lengthMs(silence))}${after}, ${Math.round(ttlShare(silence, lease) * 100)} % of its TTL`;
