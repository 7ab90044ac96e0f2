import { create, fromJson, type MessageInitShape } from '@bufbuild/protobuf';
import { type Timestamp, TimestampSchema, ValueSchema } from '@bufbuild/protobuf/wkt';
import {
  FinalStatus,
  JobEventSchema,
  type Job as JobMessage,
  JobResultSchema,
  JobSchema,
  JobState,
  JobStateSchema,
  Priority,
  PrioritySchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { invalid } from '../../domain/errors.ts';
import {
  finalStatuses,
  type Job,
  type JobEvent,
  type JobResult,
  type Priority as PriorityName,
  priorities,
} from '../../domain/jobs/job.ts';
import { type State, states } from '../../domain/jobs/state-machine.ts';
import { noSuchValue } from '../wire/enums.ts';

/** Converts jobs between the domain and the proto messages. */

const stateNumbers = new Map(states.map((state) => [state, JobState[state]]));
const stateNames = new Map(states.map((state) => [JobState[state], state]));
const priorityNumbers = new Map(priorities.map((priority) => [priority, Priority[priority]]));
const priorityNames = new Map(priorities.map((priority) => [Priority[priority], priority]));
const statusNumbers = new Map(finalStatuses.map((status) => [status, FinalStatus[status]]));

export function toState(number: JobState, field: string): State {
  const state = stateNames.get(number);
  if (!state) throw noSuchValue(JobStateSchema, number, field);
  return state;
}

export function toPriority(number: Priority, field: string): PriorityName | undefined {
  if (number === Priority.UNSPECIFIED) return undefined;
  const priority = priorityNames.get(number);
  if (!priority) throw noSuchValue(PrioritySchema, number, field);
  return priority;
}

/** A timestamp as ISO-8601, the form that the commands take. */
export function toIso(timestamp: Timestamp | undefined, field: string): string | undefined {
  if (!timestamp) return undefined;
  const ms = Number(timestamp.seconds) * 1000 + timestamp.nanos / 1e6;
  const time = new Date(ms);
  if (!(Math.abs(ms) < 8.64e15) || time.getUTCFullYear() > 9999 || time.getUTCFullYear() < 1) {
    throw invalid(field, 'must be a time between the years 1 and 9999');
  }
  return time.toISOString();
}

export function timestamp(ms: number): Timestamp {
  const seconds = Math.floor(ms / 1000);
  return create(TimestampSchema, {
    seconds: BigInt(seconds),
    nanos: Math.round((ms - seconds * 1000) * 1e6),
  });
}

const optional = (ms: number | null): Timestamp | undefined => (ms === null ? undefined : timestamp(ms));

export function jobMessage(job: Job): JobMessage {
  const message = create(JobSchema);
  message.jobId = job.jobId;
  message.addonId = job.addonId;
  message.jobType = job.jobType;
  message.priority = priorityNumbers.get(job.priority) ?? Priority.UNSPECIFIED;
  message.costUnits = job.costUnits;
  message.constraints = job.constraints;
  message.payload = job.payload;
  message.state = stateNumbers.get(job.state) ?? JobState.UNSPECIFIED;
  message.createdAt = timestamp(job.createdAtMs);
  message.updatedAt = timestamp(job.updatedAtMs);
  message.claimedBy = job.claimedBy ?? undefined;
  message.claimExpiresAt = optional(job.claimExpiresAtMs);
  message.leaseId = job.leaseId ?? undefined;
  message.attempts = job.attempts;
  message.nextRetryAt = optional(job.nextRetryAtMs);
  message.clientRequestId = job.clientRequestId ?? undefined;
  message.stream = job.stream ?? undefined;
  message.unique = job.unique;
  message.tags = job.tags;
  message.maxRuntimeS = job.maxRuntimeS ?? undefined;
  message.maxAttempts = job.maxAttempts;
  message.retryBackoffS = job.retryBackoffS;
  message.runAt = optional(job.runAtMs);
  message.cancelRequested = job.cancelRequested;
  message.progress = job.progress ?? undefined;
  message.note = job.note ?? undefined;
  message.deadLettered = job.deadLettered;
  return message;
}

export const resultMessage = (result: JobResult): MessageInitShape<typeof JobResultSchema> =>
  create(JobResultSchema, {
    jobId: result.jobId,
    status: statusNumbers.get(result.status) ?? FinalStatus.UNSPECIFIED,
    resultData: result.resultData === null ? undefined : fromJson(ValueSchema, result.resultData),
    error: result.error ?? undefined,
    errorDetail: result.errorDetail ?? undefined,
    startedAt: optional(result.startedAtMs),
    finishedAt: timestamp(result.finishedAtMs),
    attempts: result.attempts,
    metrics: result.metrics ?? undefined,
  });

export const eventMessage = (event: JobEvent): MessageInitShape<typeof JobEventSchema> =>
  create(JobEventSchema, {
    eventId: BigInt(event.eventId),
    ts: timestamp(event.tsMs),
    type: event.type,
    jobId: event.jobId,
    leaseId: event.leaseId ?? undefined,
    data: event.data,
  });
