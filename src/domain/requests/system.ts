import Type, { type Static } from 'typebox';
import { type Priority, priorities } from '../jobs/job.ts';
import { optional, ReleaseLease, SubmitJob } from './scheduler.ts';

/**
 * Fields that the request contract names differently from the queue contract. The schemas derive from those
 * of the commands, so that both contracts allow the same values and each names its own fields in its errors.
 */
const { addon_id, job_type, cost_units, client_request_id, priority: _, ...others } = SubmitJob.properties;

type SystemPriority = Lowercase<Priority>;
const systemPriorities = priorities.map((word) => word.toLowerCase() as SystemPriority);

export const SystemJob = Type.Object({
  type: job_type,
  requested_units: cost_units,
  priority: optional(Type.Enum(systemPriorities, { description: 'Which jobs go first.' })),
  idempotency_key: client_request_id,
  addon_id: optional(addon_id),
  ...others,
});
export type SystemJob = Static<typeof SystemJob>;

/** Converts such a job to a submission. */
export const submissionOf = (job: SystemJob): SubmitJob => ({
  ...job,
  addon_id: job.addon_id ?? 'default',
  job_type: job.type,
  cost_units: job.requested_units,
  client_request_id: job.idempotency_key,
  priority: job.priority == null ? undefined : (job.priority.toUpperCase() as Priority),
});

const { worker_id, lease_token, job_id, result_data, error, metrics } = ReleaseLease.properties;
const owner = { worker_id, lease_token, job_id, metrics };

export const CompleteLease = Type.Object({ ...owner, result: result_data });
export type CompleteLease = Static<typeof CompleteLease>;

export const FailLease = Type.Object({ ...owner, error });
export type FailLease = Static<typeof FailLease>;

/** Convert completion and failure to releases. */
export const completionOf = ({ result, ...rest }: CompleteLease): ReleaseLease => ({
  ...rest,
  status: 'SUCCEEDED',
  result_data: result,
  error: null,
});

export const failureOf = (command: FailLease): ReleaseLease => ({
  ...command,
  status: 'FAILED',
  result_data: null,
});
