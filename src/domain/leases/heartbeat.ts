import type { Heartbeat as HeartbeatRequest } from '../requests/scheduler.ts';
import type { Heartbeat } from './lease.ts';

/** A heartbeat from a parsed request, where an omitted field and a null field mean the same. */
export const heartbeatOf = (leaseId: string, command: HeartbeatRequest): Heartbeat => ({
  leaseId,
  workerId: command.worker_id,
  holder: null,
  token: command.lease_token?.toLowerCase() ?? null,
  jobId: command.job_id?.toLowerCase() ?? null,
  progress: command.progress ?? null,
  message: command.message ?? null,
});
