import type { Heartbeat as HeartbeatRequest } from '../requests/scheduler.ts';
import type { Heartbeat } from './lease.ts';

/** A validated heartbeat for one lease. An omitted field and a null field mean the same. */
export const heartbeatOf = (leaseId: string, command: HeartbeatRequest): Heartbeat => ({
  leaseId,
  workerId: command.worker_id,
  token: command.lease_token ?? undefined,
  jobId: command.job_id ?? undefined,
  progress: command.progress ?? undefined,
  message: command.message ?? undefined,
});
