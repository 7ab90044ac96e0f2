import Type, { type Static } from 'typebox';
import type { NamedMessage } from '../leases/lease.ts';
import { limits } from '../limits.ts';
import { AcquireLease, Heartbeat, name, optional, ReleaseLease } from './scheduler.ts';

/**
 * Requests of the worker contract. The schemas derive from those of the commands, so that all contracts allow
 * the same values and each names its own fields in its errors. In this contract the token proves ownership
 * and is required.
 */
const { wait_ms, ttl_sec, streams: _, ...acquire } = AcquireLease.properties;

export const WorkerClaim = Type.Object({
  ...acquire,
  streams: Type.Array(name('A stream.'), {
    minItems: 1,
    maxItems: limits.choices,
    description: 'The streams to take a job from, the first before the second.',
  }),
  max_wait_ms: wait_ms,
  lease_ttl_seconds: ttl_sec,
});
export type WorkerClaim = Static<typeof WorkerClaim>;

const owner = {
  worker_id: name('Who holds the lease.'),
  job_id: name('The job.'),
  lease_token: name("The lease's token."),
};
const attempt = { ...owner, attempt_id: name('The attempt, which is the lease.') };
/**
 * The message that the worker believes is the attempt's. The server acknowledges the attempt's own message by
 * itself.
 */
const message = {
  stream: optional(name("The stream of the attempt's message. Where given, it must be so.")),
  message_id: optional(name("The name of the attempt's message in its stream. Where given, it must be so.")),
};
const { result_data, error, metrics } = ReleaseLease.properties;
const { progress, message: words } = Heartbeat.properties;

export const WorkerHeartbeat = Type.Object({
  ...owner,
  attempt_id: optional(attempt.attempt_id),
  progress,
  message: words,
});
export type WorkerHeartbeat = Static<typeof WorkerHeartbeat>;

export const WorkerComplete = Type.Object({ ...attempt, ...message, result: result_data, metrics });
export type WorkerComplete = Static<typeof WorkerComplete>;

export const WorkerFail = Type.Object({ ...attempt, ...message, error, metrics });
export type WorkerFail = Static<typeof WorkerFail>;

/** Converts a worker claim to a lease request. */
export const acquisitionOf = ({ max_wait_ms, lease_ttl_seconds, ...claim }: WorkerClaim): AcquireLease => ({
  ...claim,
  ttl_sec: lease_ttl_seconds,
  wait_ms: max_wait_ms,
});

/** The message that a worker names; null where it names none. */
export const messageOf = ({ stream, message_id }: WorkerComplete | WorkerFail): NamedMessage | null =>
  stream == null && message_id == null ? null : { stream: stream ?? null, messageId: message_id ?? null };

/** Convert completion and failure to releases. */
export const workerCompletionOf = ({ result, ...command }: WorkerComplete): ReleaseLease => ({
  ...ownerOf(command),
  status: 'SUCCEEDED',
  result_data: result,
  error: null,
});

export const workerFailureOf = ({ error, ...command }: WorkerFail): ReleaseLease => ({
  ...ownerOf(command),
  status: 'FAILED',
  result_data: null,
  error,
});

const ownerOf = ({ worker_id, lease_token, job_id, metrics }: Omit<WorkerComplete, 'result'>) => ({
  worker_id,
  lease_token,
  job_id,
  metrics,
});
