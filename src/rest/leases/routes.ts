/** The queue contract's Leases API, `/api/scheduler/lease`: its paths, field names and statuses. */
import { heartbeatOf } from '../../domain/leases/heartbeat.ts';
import { releaseOf } from '../../domain/leases/release.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Engine } from '../../engine/engine.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { jobIntent, jobResult } from '../jobs/schemas.ts';
import { leaseAbout } from './docs.ts';
import { approval, leaseRecord } from './schemas.ts';

export function queueLeaseRoutes({ leases }: Engine): Route[] {
  const base = '/api/scheduler/lease';
  return [
    {
      method: 'POST',
      path: `${base}/request`,
      about: leaseAbout.requestLease,
      async handle({ body, caller }) {
        // The stored job's type, cost, priority and constraints apply, so those of the request are ignored.
        const outcome = await leases.request(parse.requestLease(body), caller);
        return { status: 200, body: approval(outcome) };
      },
    },
    {
      method: 'POST',
      path: `${base}/{lease_id}/heartbeat`,
      about: leaseAbout.heartbeat,
      async handle({ path, body, caller }) {
        const heartbeat = heartbeatOf(leaseId(path), parse.heartbeat(body));
        const { lease, job } = await leases.heartbeatWithJob(heartbeat, caller);
        return { status: 200, body: { lease: leaseRecord(lease), job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${base}/{lease_id}/release`,
      about: leaseAbout.releaseLease,
      async handle({ path, body, caller }) {
        const release = releaseOf(leaseId(path), parse.releaseLease(body), { mayRetry: false });
        const { lease, job, result } = await leases.release(release, caller);
        return {
          status: 200,
          body: { lease: leaseRecord(lease), job: jobIntent(job), result: result && jobResult(result) },
        };
      },
    },
    {
      method: 'GET',
      path: `${base}/{lease_id}`,
      about: leaseAbout.getLease,
      async handle({ path, caller }) {
        const { lease } = await leases.get(leaseId(path), caller);
        return { status: 200, body: { lease: leaseRecord(lease) } };
      },
    },
  ];
}

const leaseId = (path: RestRequest['path']): string => path.lease_id ?? '';
