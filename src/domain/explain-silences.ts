import type { Lease } from './lease.ts';
import { span } from './times.ts';

/** A time in which nothing was heard of a worker: from a grant or a heartbeat to what came next. */
export interface Silence {
  sinceMs: number;
  untilMs: number;
}

/** How a lease was kept. */
export interface LifeSigns {
  /** Null where the lease was kept before they were counted. */
  heartbeats: number | null;
  /** The longest that the lease has outlived; null where it has outlived none, or where that is not known. */
  longestSilence: Silence | null;
}

/** Silences that are shorter than this share of the TTL are how heartbeats go. */
const longSilence = 0.5;

export const lengthMs = ({ sinceMs, untilMs }: Silence): number => Math.max(0, untilMs - sinceMs);

/** What share of the lease's TTL a silence took; more than all of it where the lease lasts beyond that. */
export const ttlShare = (silence: Silence, { ttlS }: Pick<Lease, 'ttlS'>): number =>
  lengthMs(silence) / (ttlS * 1000);

export const isLong = (silence: Silence, lease: Lease): boolean => ttlShare(silence, lease) >= longSilence;

/** The grant counts as the first sign of life. */
export const wasHeard = ({ lastHeartbeatAtMs, grantedAtMs }: Lease): boolean =>
  lastHeartbeatAtMs > grantedAtMs;

/** From the last sign of life to the end of the lease, or to now. */
export const lastSilence = (lease: Lease, nowMs: number): Silence => ({
  sinceMs: lease.lastHeartbeatAtMs,
  untilMs: lease.state === 'ACTIVE' ? Math.floor(nowMs) : (lease.endedAtMs ?? lease.expiresAtMs),
});

/**
 * All that is known, from what was stored up to the last heartbeat. The silence after that counts too, unless the lease ran
 * out by it: that one is told as the reason, and is longer than any that a heartbeat ended.
 */
export function allSigns(lease: Lease, stored: LifeSigns | undefined, nowMs: number): LifeSigns {
  const heartbeats = stored?.heartbeats ?? (wasHeard(lease) ? null : 0);
  if (heartbeats === null) return { heartbeats, longestSilence: null };
  const before = stored?.longestSilence ?? null;
  const ranOut = lease.state === 'ACTIVE' ? nowMs >= lease.expiresAtMs : lease.state === 'EXPIRED';
  if (ranOut) return { heartbeats, longestSilence: before };
  const last = lastSilence(lease, nowMs);
  return { heartbeats, longestSilence: before && lengthMs(before) >= lengthMs(last) ? before : last };
}

/** From the grant on, in whole milliseconds; null where no heartbeat is known of. */
export const meanIntervalMs = (lease: Lease, { heartbeats }: LifeSigns): number | null =>
  heartbeats === null || heartbeats === 0
    ? null
    : Math.max(0, Math.round((lease.lastHeartbeatAtMs - lease.grantedAtMs) / heartbeats));

/** `48 s, 80 % of its TTL`. */
export const silenceWords = (silence: Silence, lease: Lease, after = ''): string =>
  `${span(lengthMs(silence))}${after}, ${Math.round(ttlShare(silence, lease) * 100)} % of its TTL`;
