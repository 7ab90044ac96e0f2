/** The contracts' own examples, with Leasehold's additional fields. */
import type { Static } from 'typebox';
import { retryS } from '../../domain/files/contention-policy.ts';
import { jobFields } from '../../domain/jobs/job.ts';
import { type JobBody, jobFieldList } from '../../domain/jobs/job-fields.ts';
import type { FileLeaseRecord } from '../files/schemas.ts';
import type { JobOutcome } from '../jobs/schemas.ts';
import type { LeaseRecord } from '../leases/schemas.ts';

const jobId = jobFields.job_id.example;
const leaseId = '5d2a8f34-7c1b-4e0d-8b6a-9c3e7d5f1a02';
export const token = 'c1a5f0e2-6b7d-4d3e-9f8a-1b2c3d4e5f60';

/** The examples of the fields; see `jobFields` in `domain/jobs/job.ts`. */
export const job = Object.fromEntries(jobFieldList.map(({ name, example }) => [name, example])) as JobBody;

export const claimedJob = {
  ...job,
  state: 'CLAIMED' as const,
  claimed_by: 'visuals-worker-01',
  claim_expires_at: '2025-12-28T20:17:00.000Z',
};

export const runningJob = {
  ...job,
  state: 'RUNNING' as const,
  claimed_by: 'visuals-worker-01',
  lease_id: leaseId,
  attempts: 1,
  progress: 0.65,
  note: 'rendering step 23/35',
};

export const doneJob = { ...runningJob, state: 'DONE' as const };

export const result: Static<typeof JobOutcome> = {
  job_id: jobId,
  status: 'SUCCEEDED',
  result_data: { path: '/runtime/out.jpg' },
  error: null,
  error_detail: null,
  started_at: '2025-12-28T20:16:10.000Z',
  finished_at: '2025-12-28T20:17:05.000Z',
  attempts: 1,
  metrics: { runtime_ms: 41234, peak_mem_mb: 2870 },
};

export const lease: Static<typeof LeaseRecord> = {
  lease_id: leaseId,
  job_id: jobId,
  addon_id: 'visuals',
  cost_units: 30,
  ttl_sec: 30,
  state: 'ACTIVE',
  granted_at: '2025-12-28T20:16:10.000Z',
  last_heartbeat_at: '2025-12-28T20:16:25.000Z',
  expires_at: '2025-12-28T20:16:55.000Z',
  worker_id: 'visuals-worker-01',
  fence: 4711,
  attempt: 1,
  ended_at: null,
  release_status: null,
  error: null,
  error_detail: null,
  requeued: false,
  dead_lettered: false,
};

export const releasedLease = {
  ...lease,
  state: 'RELEASED' as const,
  ended_at: '2025-12-28T20:17:05.000Z',
  release_status: 'SUCCEEDED' as const,
};

export const systemLease = {
  lease_id: leaseId,
  job_id: jobId,
  worker_id: 'worker-123',
  capacity_units: 4,
  issued_at: '2026-02-06T20:10:00.000Z',
  expires_at: '2026-02-06T20:11:00.000Z',
  last_heartbeat: '2026-02-06T20:10:00.000Z',
  fence: 4711,
  attempt: 1,
  lease_token: token,
};

const agent = { agent: 'claude-code', host: 'laptop', pid: 4242, branch: 'main', parent_owner_id: null };

export const fileLease: Static<typeof FileLeaseRecord> = {
  repository: '/home/ann/app',
  path: 'src/a.ts',
  owner_id: 'ann',
  lease_state: 'HELD',
  acquired_at: '2026-02-06T20:10:00.000Z',
  last_heartbeat_at: '2026-02-06T20:10:30.000Z',
  expires_at: '2026-02-06T20:11:30.000Z',
  fence: 4712,
  owner: agent,
};

const blocker = {
  path: 'src/a.ts',
  owner_id: 'ann',
  owner: agent,
  acquired_at: '2026-02-06T20:10:00.000Z',
  last_heartbeat_at: '2026-02-06T20:10:30.000Z',
  age_ms: 42_000,
};

export const contention = {
  contention_id: '9e8d7c6b-5a49-4838-a726-1504f3e2d1c0',
  owner_id: 'bob',
  repository: '/home/ann/app',
  paths: ['src/a.ts'],
  denied_at: '2026-02-06T20:10:42.000Z',
  retry_at: '2026-02-06T20:13:42.000Z',
  retry_after_ms: 180_000,
  blockers: [blocker],
};

const { retry_at: _, retry_after_ms: __, ...denied } = contention;

export const report = {
  ...denied,
  retried_at: '2026-02-06T20:13:42.000Z',
  halted_at: '2026-02-06T20:13:42.000Z',
  retry_s: retryS as typeof retryS,
  blocker_changed: false,
  kept_instruction: null,
};

export const owner = {
  owner_id: 'ann',
  owner: agent,
  state: 'ALIVE' as const,
  last_heartbeat_at: '2026-02-06T20:10:30.000Z',
  last_activity_at: '2026-02-06T20:10:30.000Z',
  expires_at: '2026-02-06T20:11:30.000Z',
  stopped_at: null,
  idle_at: null,
  ended_at: null,
};
