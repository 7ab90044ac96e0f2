/** Calls that name something, with the verdict outside of the scopes of a key. */
import type { JsonObject } from '@bufbuild/protobuf';

/** What exists for one tenant. */
export interface Target {
  tenant: string;
  queued: string;
  failed: string;
  lease: string;
  leaseToken: string;
}

/** `reached`: the call came to its handler, whatever it answered. */
export type Verdict = 'reached' | 'permission_denied' | 'not_found';

export interface Case {
  rpc: string;
  message: (target: Target) => JsonObject;
  /** The same call over REST. */
  route?: string;
  path?: (target: Target) => string;
  body?: (target: Target) => JsonObject;
  outside: Verdict;
  /** The verdict inside, where scopes that reach only some are not enough. */
  inside?: Verdict;
}

const jobs = 'leasehold.v1.JobsService';
const leases = 'leasehold.v1.LeasesService';
const files = 'leasehold.v1.FileLeasesService';
const stats = 'leasehold.v1.StatsService';

const submitted = ({ tenant }: Target) => ({ addon_id: tenant, job_type: 'render', cost_units: 1 });
const worker = ({ tenant }: Target) => ({ worker_id: `${tenant}-1` });
const owner = ({ tenant }: Target) => ({ owner_id: `${tenant}-1` });
const repository = ({ tenant }: Target) => ({ repository: `${tenant}/app` });
const addon = ({ tenant }: Target) => ({ addon_id: tenant });
const heartbeat = (target: Target) => ({ lease_id: target.lease, ...worker(target) });

export const cases: readonly Case[] = [
  {
    rpc: `${jobs}/SubmitJob`,
    message: submitted,
    route: 'POST /api/scheduler/jobs/submit',
    body: submitted,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/ClaimJobs`,
    message: (target) => ({ worker_id: 'red-1', ...addon(target), limit: 1 }),
    route: 'POST /api/scheduler/jobs/claim',
    body: (target) => ({ worker_id: 'red-1', ...addon(target), limit: 1 }),
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/GetJob`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}`,
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/ListJobs`,
    message: addon,
    route: 'GET /api/scheduler/jobs',
    path: ({ tenant }) => `/api/scheduler/jobs?addon_id=${tenant}`,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/UpdateJobStatus`,
    message: ({ queued }) => ({ job_id: queued, state: 'JOB_STATE_PREPARING', worker_id: 'red-1' }),
    route: 'POST /api/scheduler/jobs/{job_id}/status',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/status`,
    body: () => ({ state: 'PREPARING', worker_id: 'red-1' }),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/CancelJob`,
    message: ({ failed }) => ({ job_id: failed }),
    route: 'POST /api/scheduler/jobs/{job_id}/cancel',
    path: ({ failed }) => `/api/scheduler/jobs/${failed}/cancel`,
    body: () => ({}),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/RetryJob`,
    message: ({ failed }) => ({ job_id: failed }),
    route: 'POST /api/scheduler/jobs/{job_id}/retry',
    path: ({ failed }) => `/api/scheduler/jobs/${failed}/retry`,
    body: () => ({}),
    outside: 'not_found',
  },
  {
    rpc: `${jobs}/RetryDeadLetters`,
    message: addon,
    route: 'POST /api/scheduler/jobs/retry',
    path: () => '/api/scheduler/jobs/retry',
    body: addon,
    outside: 'permission_denied',
  },
  {
    rpc: `${jobs}/ListJobEvents`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}/events',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/events`,
    outside: 'not_found',
  },
  { rpc: `${jobs}/WatchJob`, message: ({ queued }) => ({ job_id: queued }), outside: 'not_found' },
  {
    rpc: `${leases}/RequestLease`,
    message: ({ queued }) => ({ job_id: queued, worker_id: 'red-1' }),
    route: 'POST /api/scheduler/lease/request',
    body: ({ queued }) => ({ job_id: queued, worker_id: 'red-1' }),
    outside: 'not_found',
  },
  {
    rpc: `${leases}/AcquireLease`,
    message: (target) => ({
      worker_id: 'red-1',
      ...addon(target),
      constraints_capabilities: { x_available: true },
    }),
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/AcquireLease`,
    message: worker,
    route: 'POST /api/system/scheduler/leases/request',
    body: worker,
    outside: 'permission_denied',
  },
  {
    rpc: `${leases}/Heartbeat`,
    message: heartbeat,
    route: 'POST /api/scheduler/lease/{lease_id}/heartbeat',
    path: ({ lease }) => `/api/scheduler/lease/${lease}/heartbeat`,
    body: worker,
    outside: 'permission_denied',
    // Another key holds the lease.
    inside: 'not_found',
  },
  {
    // The token takes the place of the key and of the scopes.
    rpc: `${leases}/Heartbeat`,
    message: (target) => ({ ...heartbeat(target), lease_token: target.leaseToken }),
    outside: 'reached',
  },
  {
    rpc: `${leases}/ReleaseLease`,
    message: (target) => ({ ...heartbeat(target), lease_token: 'none', status: 'FINAL_STATUS_SUCCEEDED' }),
    outside: 'not_found',
    inside: 'not_found',
  },
  {
    rpc: `${leases}/ReleaseLease`,
    message: (target) => ({ ...heartbeat(target), job_id: target.failed, status: 'FINAL_STATUS_SUCCEEDED' }),
    route: 'POST /api/scheduler/lease/{lease_id}/release',
    path: ({ lease }) => `/api/scheduler/lease/${lease}/release`,
    body: (target) => ({ ...worker(target), job_id: target.failed, status: 'SUCCEEDED' }),
    outside: 'permission_denied',
    inside: 'not_found',
  },
  {
    rpc: `${leases}/GetLease`,
    message: ({ lease }) => ({ lease_id: lease }),
    route: 'GET /api/scheduler/lease/{lease_id}',
    path: ({ lease }) => `/api/scheduler/lease/${lease}`,
    outside: 'not_found',
  },
  {
    rpc: `${leases}/StreamWork`,
    message: (target) => ({ worker_id: 'red-1', credits: [{ jobs: 1, ...addon(target), max_units: 1 }] }),
    outside: 'permission_denied',
  },
  {
    rpc: `${stats}/Explain`,
    message: ({ queued }) => ({ job_id: queued }),
    route: 'GET /api/scheduler/jobs/{job_id}/explain',
    path: ({ queued }) => `/api/scheduler/jobs/${queued}/explain`,
    outside: 'not_found',
  },
  {
    rpc: `${stats}/GetSnapshot`,
    message: addon,
    route: 'GET /api/scheduler/stats/snapshot',
    path: ({ tenant }) => `/api/scheduler/stats/snapshot?addon_id=${tenant}`,
    outside: 'permission_denied',
  },
  {
    rpc: `${stats}/GetTimeseries`,
    message: (target) => ({ ...addon(target), metric: 'jobs_submitted', bucket: '1d', range: '7d' }),
    route: 'GET /api/scheduler/stats/timeseries',
    path: ({ tenant }) =>
      `/api/scheduler/stats/timeseries?addon_id=${tenant}&metric=jobs_submitted&bucket=1d&range=7d`,
    outside: 'permission_denied',
  },
  { rpc: `${stats}/WatchSnapshots`, message: addon, outside: 'permission_denied' },
  {
    rpc: `${stats}/SetCapacity`,
    message: () => ({ total: 100 }),
    route: 'PUT /api/scheduler/stats/capacity',
    path: () => '/api/scheduler/stats/capacity',
    body: () => ({ total: 100 }),
    inside: 'permission_denied',
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/AcquireFileLeases`,
    message: (target) => ({ ...owner(target), ...repository(target), paths: ['a.ts'] }),
    route: 'POST /api/files/acquire',
    body: (target) => ({ ...owner(target), ...repository(target), paths: ['a.ts'] }),
    outside: 'permission_denied',
  },
  ...(
    [
      ['HeartbeatOwner', 'POST /api/files/heartbeat', '/api/files/heartbeat'],
      ['RecordActivity', 'POST /api/files/owners/{owner_id}/activity', 'activity'],
      ['StopOwner', 'POST /api/files/owners/{owner_id}/stop', 'stop'],
      ['EndOwner', 'POST /api/files/owners/{owner_id}/end', 'end'],
    ] as const
  ).map(
    ([name, route, path]): Case => ({
      rpc: `${files}/${name}`,
      message: owner,
      route,
      path: ({ tenant }) => (path.startsWith('/') ? path : `/api/files/owners/${tenant}-1/${path}`),
      body: owner,
      outside: 'permission_denied',
    }),
  ),
  {
    rpc: `${files}/ReleaseFileLeases`,
    message: (target) => ({ ...owner(target), ...repository(target), reason: 'FILE_RELEASE_REASON_FAILED' }),
    route: 'POST /api/files/release',
    body: (target) => ({ ...owner(target), ...repository(target), reason: 'FAILED' }),
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/ListFileLeases`,
    message: repository,
    route: 'GET /api/files/leases',
    path: ({ tenant }) => `/api/files/leases?repository=${tenant}/app`,
    outside: 'permission_denied',
  },
  {
    rpc: `${files}/ListBlockers`,
    message: repository,
    route: 'GET /api/files/blockers',
    path: ({ tenant }) => `/api/files/blockers?repository=${tenant}/app`,
    outside: 'permission_denied',
  },
  { rpc: `${files}/WatchFileLeases`, message: repository, outside: 'permission_denied' },
];
