import { retryS } from '../domain/contentions.ts';
import type {
  Blocked,
  Blocker,
  BlockerReport,
  Contention,
  FileLease,
  LostFile,
} from '../domain/file-lease.ts';
import type { Owner } from '../domain/file-owners.ts';
import { iso } from '../domain/times.ts';

/** File leases in the contract's words. */

export const fileLease = (lease: FileLease) => ({
  repository: lease.repository,
  path: lease.path,
  owner_id: lease.ownerId,
  lease_state: lease.state,
  acquired_at: iso(lease.acquiredAtMs),
  last_heartbeat_at: iso(lease.lastHeartbeatAtMs),
  expires_at: iso(lease.expiresAtMs),
  fence: Number(lease.fence),
  owner: lease.owner,
});

export const fileOwner = (owner: Owner) => ({
  owner_id: owner.ownerId,
  owner: owner.profile,
  state: owner.state,
  last_heartbeat_at: iso(owner.lastHeartbeatAtMs),
  last_activity_at: iso(owner.lastActivityAtMs),
  expires_at: iso(owner.expiresAtMs),
  stopped_at: iso(owner.stoppedAtMs),
  idle_at: iso(owner.idleAtMs),
  ended_at: iso(owner.endedAtMs),
});

export const lostFile = ({ repository, path, fence, lostAtMs, reason }: LostFile) => ({
  repository,
  path,
  fence: Number(fence),
  lost_at: iso(lostAtMs),
  reason,
});

const blocker = (one: Blocker) => ({
  path: one.path,
  owner_id: one.ownerId,
  owner: one.owner,
  acquired_at: iso(one.acquiredAtMs),
  last_heartbeat_at: iso(one.lastHeartbeatAtMs),
  age_ms: one.ageMs,
});

export const contention = (one: Contention) => ({
  contention_id: one.contentionId,
  owner_id: one.ownerId,
  repository: one.repository,
  paths: one.paths,
  denied_at: iso(one.deniedAtMs),
  retry_at: iso(one.retryAtMs),
  retry_after_ms: one.retryAfterMs,
  blockers: one.blockers.map(blocker),
});

export const report = (one: BlockerReport) => ({
  contention_id: one.contentionId,
  owner_id: one.ownerId,
  repository: one.repository,
  paths: one.paths,
  denied_at: iso(one.deniedAtMs),
  retried_at: iso(one.retriedAtMs),
  halted_at: iso(one.haltedAtMs),
  retry_s: retryS,
  blocker_changed: one.blockerChanged,
  blockers: one.blockers.map(blocker),
});

/** One row of the list: in the words of the answer that its owner got. */
export const blockedRow = (blocked: Blocked) =>
  blocked.kind === 'contended'
    ? { state: 'CONTENDED', ...contention(blocked.contention) }
    : { state: 'HALTED', ...report(blocked.report) };
