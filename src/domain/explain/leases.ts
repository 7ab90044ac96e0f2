import type { JobEvent } from '../jobs/job.ts';
import type { Lease } from '../leases/lease.ts';
import { iso, span } from '../time.ts';
import { type Cause, type ExplainFacts, type StreamClosing, type StreamEnd, streamEnds } from './facts.ts';
import {
  type AttemptHeartbeats,
  isOverMaxRuntime,
  lengthMs,
  silenceWords,
  ttlShare,
  wasHeard,
  wasNearLoss,
} from './silences.ts';
import { cause, outageText } from './text.ts';

type Facts = Pick<ExplainFacts, 'nowMs' | 'job' | 'events' | 'outages' | 'streamClosed'>;

/** The condition of an attempt, or why it ended: the main cause first, then the contributing ones. */
export function explainAttempt(lease: Lease, signs: AttemptHeartbeats, facts: Facts): Cause[] {
  if (lease.state === 'ACTIVE') return active(lease, signs, facts);
  if (lease.state === 'RELEASED') return [released(lease)];
  return [expiry(lease, signs, facts), ...secondaryCauses(lease, signs, facts)];
}

function active(lease: Lease, signs: AttemptHeartbeats, facts: Facts): Cause[] {
  const { nowMs, job } = facts;
  const { workerId, lastHeartbeatAtMs, expiresAtMs, grantedAtMs } = lease;
  const times = { sinceMs: grantedAtMs, untilMs: expiresAtMs };
  const figures = {
    worker_id: workerId,
    last_heartbeat_at: iso(lastHeartbeatAtMs),
    expires_at: iso(expiresAtMs),
    ttl_sec: lease.ttlS,
  };
  const late = nowMs - expiresAtMs;
  const heard = wasHeard(lease, signs)
    ? `the last heartbeat of ${workerId} was ${span(nowMs - lastHeartbeatAtMs)} ago`
    : `no heartbeat of ${workerId} since the grant ${span(nowMs - grantedAtMs)} ago`;
  const [code, text] =
    late >= 0
      ? ([
          'lease_overdue',
          `${heard}; the lease expired ${span(late)} ago, and the server is about to end it`,
        ] as const)
      : job.state === 'LEASED'
        ? ([
            'waiting_for_first_heartbeat',
            `${heard}; without a heartbeat the lease expires in ${span(-late)}`,
          ] as const)
        : (['running', `${heard}; without another heartbeat the lease expires in ${span(-late)}`] as const);
  return [cause(code, text, { ...times, facts: figures }), ...secondaryCauses(lease, signs, facts)];
}

/** Contributing causes of a lease that may expire, or has expired. */
const secondaryCauses = (lease: Lease, signs: AttemptHeartbeats, facts: Facts): Cause[] => [
  ...streamClosed(lease, facts),
  ...outageCause(lease, facts),
  ...longSilence(lease, signs),
];

function released({ workerId, releaseStatus, error, requeued, endedAtMs, grantedAtMs }: Lease): Cause {
  const took = endedAtMs === null ? '' : ` after ${span(endedAtMs - grantedAtMs)}`;
  const why = error === null ? '' : `: ${error}`;
  const facts = { worker_id: workerId, status: releaseStatus, error };
  return requeued
    ? cause(
        'failed_retryably',
        `${workerId} released it as ${releaseStatus}${took}, and the job was requeued${why}`,
        {
          sinceMs: endedAtMs,
          facts,
        },
      )
    : cause('released', `${workerId} released it as ${releaseStatus}${took}${why}`, {
        sinceMs: endedAtMs,
        facts,
      });
}

function expiry(lease: Lease, signs: AttemptHeartbeats, { job }: Facts): Cause {
  const { workerId, grantedAtMs, lastHeartbeatAtMs, expiresAtMs, endedAtMs } = lease;
  const facts = {
    worker_id: workerId,
    granted_at: iso(grantedAtMs),
    last_heartbeat_at: iso(lastHeartbeatAtMs),
    expires_at: iso(expiresAtMs),
    ttl_sec: lease.ttlS,
    max_runtime_s: job.maxRuntimeS,
  };
  const times = { sinceMs: lastHeartbeatAtMs, untilMs: expiresAtMs, facts };
  const silent = span((endedAtMs ?? expiresAtMs) - lastHeartbeatAtMs);
  if (job.maxRuntimeS !== null && isOverMaxRuntime(lease, job)) {
    const last = wasHeard(lease, signs) ? `; the last heartbeat was ${silent} before its end` : '';
    const allowed = span(job.maxRuntimeS * 1000);
    const text = `it lasted the ${allowed} that max_runtime_s allows, and ${workerId} had not finished${last}`;
    return cause('over_max_runtime', text, { ...times, sinceMs: grantedAtMs });
  }
  if (!wasHeard(lease, signs)) {
    const text = `no heartbeat of ${workerId} came after the grant; the lease lasted for ${silent}`;
    return cause('never_heard_of', text, times);
  }
  const since = iso(lastHeartbeatAtMs);
  const text = `no heartbeat of ${workerId} since ${since}, for ${silent}, with a TTL of ${lease.ttlS} s`;
  return cause('no_heartbeat_since', text, times);
}

/** The last heartbeats of a stream may be committed after the stream has closed. */
const closingSlackMs = 1_000;

/**
 * When the stream that renewed a lease last was closed, by the database's clock. Undefined where the lease
 * was renewed in another way after that.
 */
export function closedAtMs(agoMs: number, nowMs: number, heardAtMs: number | null): number | undefined {
  const atMs = Math.floor(nowMs - agoMs);
  return heardAtMs !== null && atMs < heardAtMs - closingSlackMs ? undefined : atMs;
}

const endWords: Record<StreamEnd, string> = {
  ended: 'the worker ended it',
  gone: 'the connection was cut or canceled',
  failed: 'the server ended it with an error',
  drained: 'the server was about to stop',
};

/** For an expired lease this is known if the server that detected the expiry had carried the stream. */
function streamClosed(lease: Lease, { events, streamClosed: now }: Facts): Cause[] {
  if (lease.state === 'ACTIVE') return now ? [closed(lease, now)] : [];
  const expiryEvent = [...events.first, ...events.last].find(isExpiryOf(lease.leaseId));
  const { stream_closed_at: at, stream_end } = expiryEvent?.data ?? {};
  const how = streamEnds.find((each) => each === stream_end);
  return typeof at === 'string' && how ? [closed(lease, { atMs: Date.parse(at), how })] : [];
}

function closed({ workerId, lastHeartbeatAtMs, grantedAtMs }: Lease, { atMs, how }: StreamClosing): Cause {
  const last = lastHeartbeatAtMs === grantedAtMs ? 'grant' : 'last heartbeat';
  const when = `${iso(atMs)}, ${span(atMs - lastHeartbeatAtMs)} after its ${last}`;
  const text = `the stream over which ${workerId} renewed it closed at ${when}: ${endWords[how]}`;
  return cause('stream_closed', text, {
    sinceMs: atMs,
    facts: { worker_id: workerId, stream_closed_at: iso(atMs), stream_end: how },
  });
}

const isExpiryOf =
  (leaseId: string) =>
  (event: JobEvent): boolean =>
    event.type === 'LEASE_EXPIRED' && event.leaseId === leaseId;

/** Outages during the last silence of a lease: the server could not receive the worker's heartbeats. */
function outageCause({ lastHeartbeatAtMs, expiresAtMs }: Lease, { outages }: Facts): Cause[] {
  return outages
    .filter(({ beganAtMs, endedAtMs }) => endedAtMs >= lastHeartbeatAtMs && beganAtMs < expiresAtMs)
    .map(({ beganAtMs, endedAtMs }) =>
      cause(
        'server_away',
        `${outageText({ beganAtMs, endedAtMs })} from ${iso(beganAtMs)}; ${
          expiresAtMs > endedAtMs
            ? 'the lease was extended by that time'
            : 'the lease expired during that time'
        }`,
        {
          sinceMs: beganAtMs,
          untilMs: endedAtMs,
          facts: { began_at: iso(beganAtMs), ended_at: iso(endedAtMs), away_ms: endedAtMs - beganAtMs },
        },
      ),
    );
}

/**
 * A lease that had nearly expired before: its worker had been silent for as long, and sent a heartbeat in
 * time.
 */
function longSilence(lease: Lease, { survived }: AttemptHeartbeats): Cause[] {
  if (!survived || !wasNearLoss(survived, lease)) return [];
  const { sinceMs, untilMs } = survived;
  const silence = `${iso(sinceMs)} for ${silenceWords(survived, lease)}`;
  const text = `${lease.workerId} was silent before, from ${silence}`;
  const facts = {
    worker_id: lease.workerId,
    lasted_ms: lengthMs(survived),
    ttl_share: ttlShare(survived, lease),
    ttl_sec: lease.ttlS,
  };
  return [cause('long_silence', text, { sinceMs, untilMs, facts })];
}
