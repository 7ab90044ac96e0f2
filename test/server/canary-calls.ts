/** Random calls of one tenant, some of which name ids of the other. */
import type { JsonObject } from '@bufbuild/protobuf';
import type { Call, RestCall } from './canary.ts';

export interface Player {
  name: string;
  /** The ids in its answers. */
  ids: Set<string>;
}

/** What a call is made of. */
interface Draw {
  name: string;
  /** An id of its own, or one that it has from the other tenant. */
  id(): string;
  one<Item>(...items: Item[]): Item;
  worker(): string;
}

type Maker = (draw: Draw) => JsonObject;

const job: Maker = ({ name, one }) => ({
  addonId: name,
  jobType: `${name}-${one('a', 'b')}`,
  costUnits: one(1, 2, 15),
  payload: { text: name },
  tags: [name],
  maxAttempts: 2,
  ...one<JsonObject>({}, { stream: `${name}-s` }),
  // The same keys in both tenants.
  ...one<JsonObject>({}, { clientRequestId: one('key-1', 'key-2'), onDuplicate: one(1, 2) }),
});

const byJob: Maker = ({ id }) => ({ jobId: id() });
const byLease: Maker = ({ id }) => ({ leaseId: id() });
const owner: Maker = ({ worker }) => ({ ownerId: worker() });
const files: Maker = ({ name, worker, one }) => ({
  ownerId: worker(),
  repository: `${name}/app`,
  paths: [`${name}.ts`, one('x', 'y')],
  owner: { agent: name, branch: name },
});
const release: Maker = ({ id, name, worker, one }) => ({
  leaseId: id(),
  workerId: worker(),
  status: one(1, 2),
  resultData: { text: name },
  error: { code: name, message: name, retryable: one(true, false) },
});
const heartbeat: Maker = ({ id, name, worker }) => ({ leaseId: id(), workerId: worker(), message: name });

const rpcs: Readonly<Record<string, Maker>> = {
  'JobsService/SubmitJob': job,
  'JobsService/SubmitJobs': (draw) => ({ jobs: [job(draw), job(draw)] }),
  'JobsService/ClaimJobs': ({ worker, one }) => ({
    workerId: worker(),
    requestId: one('r-1', 'r-2'),
    limit: 3,
  }),
  'JobsService/GetJob': byJob,
  'JobsService/ListJobs': ({ one }) => ({ limit: 200, ...one<JsonObject>({}, { oldestFirst: true }) }),
  'JobsService/UpdateJobStatus': ({ id, name, one, worker }) => ({
    jobId: id(),
    workerId: worker(),
    state: one(2, 3),
    note: name,
  }),
  'JobsService/CancelJob': ({ id, name }) => ({ jobId: id(), reason: name, requestedBy: name }),
  'JobsService/RetryJob': byJob,
  'JobsService/ListStreams': () => ({}),
  'JobsService/ListJobEvents': byJob,
  'JobsService/WatchJob': byJob,
  'LeasesService/RequestLease': ({ id, worker }) => ({ jobId: id(), workerId: worker(), requestId: 'q-1' }),
  'LeasesService/AcquireLease': ({ name, worker, one }) => ({
    workerId: worker(),
    ...one<JsonObject>({}, { requestId: one('a-1', 'a-2') }, { streams: [`${name}-s`] }),
  }),
  'LeasesService/Heartbeat': heartbeat,
  'LeasesService/StreamHeartbeats': (draw) => ({ heartbeats: [heartbeat(draw)], owners: [owner(draw)] }),
  'LeasesService/StreamWork': (draw) => ({
    workerId: draw.worker(),
    heartbeats: [heartbeat(draw)],
    releases: [release(draw)],
    credits: [{ jobs: 1 }],
  }),
  'LeasesService/ReleaseLease': release,
  'LeasesService/GetLease': byLease,
  'LeasesService/ListLeases': ({ id, one }) => one<JsonObject>({}, { jobId: id() }, { workerId: 'w-1' }),
  'FileLeasesService/AcquireFileLeases': files,
  'FileLeasesService/HeartbeatOwner': owner,
  'FileLeasesService/RecordActivity': owner,
  'FileLeasesService/StopOwner': owner,
  'FileLeasesService/EndOwner': owner,
  'FileLeasesService/ReleaseFileLeases': ({ name, worker, one }) => ({
    ownerId: worker(),
    repository: one(`${name}/app`, '*'),
    reason: one(1, 2),
  }),
  'FileLeasesService/ListFileLeases': ({ name, one }) =>
    one<JsonObject>({}, { repository: `${name}/app` }, { repository: `${name}/app`, ownerId: 'w-1' }),
  'FileLeasesService/ListBlockers': ({ name, one }) => one<JsonObject>({}, { repository: `${name}/app` }),
  'FileLeasesService/WatchFileLeases': ({ name, one }) =>
    one<JsonObject>({}, { repository: `${name}/app`, afterCursor: '0.0' }),
  'StatsService/GetCapacity': () => ({}),
  'StatsService/Explain': (draw) => draw.one(byJob, byLease)(draw),
  'StatsService/GetSnapshot': ({ name, one }) => one<JsonObject>({}, { addonId: name }),
  'StatsService/GetTimeseries': ({ name }) => ({ addonId: name }),
  'StatsService/WatchSnapshots': ({ name }) => ({ addonId: name }),
  'StatsService/Diagnose': () => ({}),
  'StatsService/GetQueue': () => ({}),
  'StatsService/ListWorkers': () => ({}),
  'StatsService/ListCapacityChanges': () => ({}),
  'KeysService/WhoAmI': () => ({}),
  'KeysService/ListKeys': () => ({}),
  'KeysService/ListAuditEvents': () => ({}),
};

type Route = (draw: Draw) => Omit<RestCall, 'over'>;
const get =
  (path: (draw: Draw) => string): Route =>
  (draw) => ({ method: 'GET', path: path(draw) });
const post =
  (path: (draw: Draw) => string, body: Maker): Route =>
  (draw) => ({ method: 'POST', path: path(draw), body: body(draw) });

const asWorker: Maker = ({ worker, name }) => ({ worker_id: worker(), message: name });
const attempt: Maker = ({ id, worker, name }) => ({
  worker_id: worker(),
  job_id: id(),
  attempt_id: id(),
  lease_token: id(),
  result: { text: name },
  error: { code: name, message: name },
});

const routes: readonly Route[] = [
  get(({ id }) => `/api/scheduler/jobs/${id()}`),
  get(({ id }) => `/api/scheduler/jobs/${id()}/events`),
  get(({ id }) => `/api/scheduler/jobs/${id()}/attempts`),
  get(({ id }) => `/api/scheduler/jobs/${id()}/explain`),
  get(({ id }) => `/api/system/scheduler/jobs/${id()}`),
  get(({ id }) => `/api/scheduler/lease/${id()}`),
  get(({ id }) => `/api/scheduler/lease/${id()}/explain`),
  get(() => '/api/scheduler/jobs?limit=200'),
  get(() => '/api/scheduler/streams'),
  get(() => '/api/scheduler/stats/snapshot'),
  get(({ name }) => `/api/scheduler/stats/snapshot?addon_id=${name}`),
  get(({ name }) => `/api/scheduler/stats/timeseries?addon_id=${name}`),
  get(() => '/api/scheduler/stats/capacity'),
  get(() => '/api/scheduler/stats/queue'),
  get(() => '/api/scheduler/workers'),
  get(() => '/api/system/doctor'),
  get(() => '/metrics'),
  get(() => '/readyz'),
  get(() => '/api/files/leases'),
  get(({ name }) => `/api/files/leases?repository=${name}/app`),
  get(({ name }) => `/api/files/blockers?repository=${name}/app`),
  get(() => '/api/access/keys'),
  get(() => '/api/access/audit'),
  post(() => '/api/system/scheduler/leases/request', asWorker),
  post(({ id }) => `/api/system/scheduler/leases/${id()}/heartbeat`, asWorker),
  post(({ id }) => `/api/system/scheduler/leases/${id()}/complete`, asWorker),
  post(({ id }) => `/api/scheduler/lease/${id()}/heartbeat`, asWorker),
  post(
    () => '/internal/worker/claim',
    ({ name, worker }) => ({ worker_id: worker(), streams: [`${name}-s`], max_wait_ms: 0 }),
  ),
  post(() => '/internal/worker/heartbeat', attempt),
  post(() => '/internal/worker/complete', attempt),
  post(() => '/internal/worker/fail', attempt),
];

/** A call of the player; with a victim, some of the ids in it are the victim's. */
export function randomCall(random: () => number, { name, ids }: Player, victim: Player | undefined): Call {
  const one = <Item>(...items: Item[]): Item => items[Math.floor(random() * items.length)] as Item;
  const draw: Draw = {
    name,
    one,
    id: () => {
      const known = [...(victim && random() < 0.5 ? victim.ids : ids)];
      return known.length === 0 ? '0190c1d2-7e1f-7abc-8def-0123456789ab' : one(...known);
    },
    worker: () => one('w-1', 'w-2', `${name}-1`),
  };
  if (random() < 0.35) return { over: 'rest', ...one(...routes)(draw) };
  // Jobs, leases and files first: without them the other calls have nothing to show.
  const common = [
    'JobsService/SubmitJob',
    'LeasesService/AcquireLease',
    'FileLeasesService/AcquireFileLeases',
  ];
  const rpc = random() < 0.45 ? one(...common) : one(...Object.keys(rpcs));
  const frame = (rpcs[rpc] as Maker)(draw);
  const isDuplex = rpc === 'LeasesService/StreamWork' || rpc === 'LeasesService/StreamHeartbeats';
  return { over: isDuplex ? 'grpc' : one('grpc', 'connect'), rpc, frames: [frame] };
}
