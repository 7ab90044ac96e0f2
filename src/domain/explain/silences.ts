import type { Job } from '../jobs/job.ts';
import type { Lease } from '../leases/lease.ts';
import { span } from '../time.ts';

/** A time in which nothing was heard of a worker: from a grant or a heartbeat to what came next. */
export interface Silence {
  sinceMs: number;
  untilMs: number;
}

/** How a lease was kept, as it is stored with each heartbeat. */
export interface HeartbeatStats {
  /** Null before the first one, and where the lease was kept before they were counted. */
  heartbeats: number | null;
  /** The longest that a heartbeat ended; null where none has, or where that is not known. */
  longestSilence: Silence | null;
}

/** How an attempt was kept, by all that is known. */
export interface AttemptHeartbeats {
  /** Null where the lease was kept before they were counted. */
  heartbeats: number | null;
  /** The longest that did not end the lease; null where there is none, or where that is not known. */
  longestSilence: Silence | null;
  /** The longest that a heartbeat ended, and by which the lease came nearest to its end. */
  survived: Silence | null;
}

/** Silences that are shorter than this share of the TTL are how heartbeats go: many workers beat each half of it. */
const longSilence = 0.5;

/** What was as long as this had nearly lost its lease: it is more than a worker takes who beats each third and misses one. */
const nearLoss = 0.75;

export const lengthMs = ({ sinceMs, untilMs }: Silence): number => Math.max(0, untilMs - sinceMs);

/** What share of the lease's TTL a silence took; more than all of it where the lease lasts beyond that. */
export const ttlShare = (silence: Silence, { ttlS }: Pick<Lease, 'ttlS'>): number =>
  lengthMs(silence) / (ttlS * 1000);

export const isLong = (silence: Silence, lease: Lease): boolean => ttlShare(silence, lease) >= longSilence;

export const wasNearLoss = (silence: Silence, lease: Lease): boolean => ttlShare(silence, lease) >= nearLoss;

/**
 * Whether anything came after the grant, which counts as the first sign of life. A first heartbeat in the grant's own
 * millisecond, or by a clock that was set back, is not later than the grant, but it is counted.
 */
export const wasHeard = (
  { lastHeartbeatAtMs, grantedAtMs }: Lease,
  { heartbeats }: Pick<AttemptHeartbeats, 'heartbeats'>,
): boolean => (heartbeats === null ? lastHeartbeatAtMs > grantedAtMs : heartbeats > 0);

/** No heartbeat extends a lease beyond `max_runtime_s`, so one that lasted as long could not have been kept. */
export const isOverMaxRuntime = (
  { expiresAtMs, grantedAtMs }: Lease,
  { maxRuntimeS }: Pick<Job, 'maxRuntimeS'>,
): boolean => maxRuntimeS !== null && expiresAtMs >= grantedAtMs + maxRuntimeS * 1000;

/** From the last sign of life to the end of the lease, or to now. */
export const lastSilence = (lease: Lease, nowMs: number): Silence => ({
  sinceMs: lease.lastHeartbeatAtMs,
  untilMs: lease.state === 'ACTIVE' ? Math.floor(nowMs) : (lease.endedAtMs ?? lease.expiresAtMs),
});

/**
 * All that is known, from what was stored up to the last heartbeat. The silence after that counts too, unless the lease ran
 * out by it: that one is told as the reason. It may be shorter than one before it, which a make-up for an outage let the
 * lease outlive. A lease that is over its `max_runtime_s` did not end by a silence, so its last one counts up to its end.
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
 * A server of the version before grants a job again and leaves with it what was stored of its lease before. A silence that
 * began before the grant tells so, unless the clock was set back, by which heartbeats come before the grant as well.
 */
function ofThisAttempt(
  { grantedAtMs, lastHeartbeatAtMs }: Lease,
  stored: HeartbeatStats | undefined,
): HeartbeatStats {
  const sinceMs = stored?.longestSilence?.sinceMs ?? grantedAtMs;
  const isOfOneBefore = sinceMs < grantedAtMs && lastHeartbeatAtMs >= grantedAtMs;
  return stored && !isOfOneBefore ? stored : none;
}

/** From the grant on, in whole milliseconds; null where no heartbeat is known of that came later than the grant. */
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
