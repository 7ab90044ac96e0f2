/** The queue contract's Leases API, `/api/scheduler/lease`: its paths, its words, its statuses. */
import { beatOf } from '../domain/beat.ts';
import type { Lease, LeaseOutcome } from '../domain/lease.ts';
import { parse } from '../domain/parsers.ts';
import { releaseOf } from '../domain/release.ts';
import { iso } from '../domain/times.ts';
import type { Engine } from '../engine/engine.ts';
import { jobIntent, jobResult } from './queue.ts';
import type { RestRequest, Route } from './router.ts';

export function queueLeaseRoutes({ leaseRequester, heartbeats, releaser, leaseReader }: Engine): Route[] {
  const leases = '/api/scheduler/lease';
  return [
    {
      method: 'POST',
      path: `${leases}/request`,
      async handle({ body, caller }) {
        // The job's own type, weight, priority and constraints stand, so what the request says of them is not read.
        const outcome = await leaseRequester.request(parse.requestLease(body), caller);
        return { status: 200, body: approval(outcome) };
      },
    },
    {
      method: 'POST',
      path: `${leases}/{lease_id}/heartbeat`,
      async handle({ path, body, caller }) {
        await heartbeats.beat(beatOf(leaseId(path), parse.heartbeat(body)), caller);
        const { lease, job } = await leaseReader.get(leaseId(path), caller);
        return { status: 200, body: { lease: leaseRecord(lease), job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${leases}/{lease_id}/release`,
      async handle({ path, body, caller }) {
        const release = releaseOf(leaseId(path), parse.releaseLease(body), false);
        const { lease, job, result } = await releaser.release(release, caller);
        return {
          status: 200,
          body: { lease: leaseRecord(lease), job: jobIntent(job), result: result && jobResult(result) },
        };
      },
    },
    {
      method: 'GET',
      path: `${leases}/{lease_id}`,
      async handle({ path, caller }) {
        const { lease } = await leaseReader.get(leaseId(path), caller);
        return { status: 200, body: { lease: leaseRecord(lease) } };
      },
    },
  ];
}

const leaseId = (path: RestRequest['path']): string => path.lease_id ?? '';

function approval(outcome: LeaseOutcome) {
  if (outcome.kind === 'denied') {
    const seconds = Math.max(1, Math.ceil(outcome.retryAfterMs / 1000));
    return { approved: false, retry_after_sec: seconds, reason: outcome.reason };
  }
  const { lease, token, job } = outcome;
  return { approved: true, lease: { ...leaseRecord(lease), lease_token: token }, job: jobIntent(job) };
}

/** A lease in the contract's words, and the fields that Leasehold has beside them. */
export const leaseRecord = (lease: Lease) => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  addon_id: lease.addonId,
  cost_units: lease.costUnits,
  ttl_sec: lease.ttlS,
  state: lease.state,
  granted_at: iso(lease.grantedAtMs),
  last_heartbeat_at: iso(lease.lastHeartbeatAtMs),
  expires_at: iso(lease.expiresAtMs),
  worker_id: lease.workerId,
  fence: Number(lease.fence),
  attempt: lease.attempt,
  ended_at: iso(lease.endedAtMs),
  release_status: lease.releaseStatus,
  error: lease.error,
  error_detail: lease.errorDetail,
  requeued: lease.requeued,
  dead_lettered: lease.deadLettered,
});
