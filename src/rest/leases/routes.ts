/** The queue contract's Leases API, `/api/scheduler/lease`: its paths, field names and statuses. */
import { heartbeatOf } from '../../domain/leases/heartbeat.ts';
import { releaseOf } from '../../domain/leases/release.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { jobIntent, jobResult } from '../jobs/schemas.ts';
import { leaseAbout } from './docs.ts';
import { approval, leaseRecord } from './schemas.ts';

export function queueLeaseRoutes({ leaseRequester, heartbeats, releaser, leaseQueries }: Engine): Route[] {
  const leases = '/api/scheduler/lease';
  return [
    {
      method: 'POST',
      path: `${leases}/request`,
      about: leaseAbout.requestLease,
      async handle({ body, caller }) {
        // The stored job's type, cost, priority and constraints apply, so those of the request are ignored.
        const outcome = await leaseRequester.request(parse.requestLease(body), caller);
        return { status: 200, body: approval(outcome) };
      },
    },
    {
      method: 'POST',
      path: `${leases}/{lease_id}/heartbeat`,
      about: leaseAbout.heartbeat,
      async handle({ path, body, caller }) {
        await heartbeats.heartbeat(heartbeatOf(leaseId(path), parse.heartbeat(body)), caller);
        const { lease, job } = await leaseQueries.get(leaseId(path), caller);
        return { status: 200, body: { lease: leaseRecord(lease), job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${leases}/{lease_id}/release`,
      about: leaseAbout.releaseLease,
      async handle({ path, body, caller }) {
        const release = releaseOf(leaseId(path), parse.releaseLease(body), { mayRetry: false });
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
      about: leaseAbout.getLease,
      async handle({ path, caller }) {
        const { lease } = await leaseQueries.get(leaseId(path), caller);
        return { status: 200, body: { lease: leaseRecord(lease) } };
      },
    },
  ];
}

const leaseId = (path: RestRequest['path']): string => path.lease_id ?? '';
