/** Jobs and leases in the words of the request and heartbeat contracts, and the fields that Leasehold has beside them. */
import type { Job } from '../domain/job.ts';
import type { Lease } from '../domain/lease.ts';
import type { State } from '../domain/machine.ts';
import { iso } from '../domain/times.ts';

/** A claim is the queue contract's affair; here the job simply has no lease yet. */
const stateWords: Record<State, string> = {
  QUEUED: 'queued',
  CLAIMED: 'queued',
  PREPARING: 'queued',
  LEASE_PENDING: 'queued',
  LEASED: 'leased',
  RUNNING: 'running',
  DONE: 'completed',
  FAILED: 'failed',
  CANCELED: 'canceled',
  TIMEOUT: 'expired',
};

export const systemJob = (job: Job) => ({
  job_id: job.jobId,
  type: job.jobType,
  priority: job.priority.toLowerCase(),
  requested_units: job.costUnits,
  unique: job.unique,
  state: stateWords[job.state],
  payload: job.payload,
  idempotency_key: job.clientRequestId,
  tags: job.tags,
  max_runtime_s: job.maxRuntimeS,
  lease_id: job.leaseId,
  created_at: iso(job.createdAtMs),
  updated_at: iso(job.updatedAtMs),
  addon_id: job.addonId,
  constraints: job.constraints,
  stream: job.stream,
  attempts: job.attempts,
  max_attempts: job.maxAttempts,
  retry_backoff_s: job.retryBackoffS,
  run_at: iso(job.runAtMs),
  next_retry_at: iso(job.nextRetryAtMs),
  cancel_requested: job.cancelRequested,
  progress: job.progress,
  note: job.note,
});

export const systemLease = (lease: Lease) => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  worker_id: lease.workerId,
  capacity_units: lease.costUnits,
  issued_at: iso(lease.grantedAtMs),
  expires_at: iso(lease.expiresAtMs),
  last_heartbeat: iso(lease.lastHeartbeatAtMs),
  fence: Number(lease.fence),
  attempt: lease.attempt,
});
