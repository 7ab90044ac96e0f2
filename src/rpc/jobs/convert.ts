import { create, fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { type Timestamp, TimestampSchema } from '@bufbuild/protobuf/wkt';
import {
  JobEventSchema,
  type Job as JobMessage,
  type JobResult as JobResultMessage,
  JobResultSchema,
  JobSchema,
  JobState,
  JobStateSchema,
  Priority,
  PrioritySchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { invalid } from '../../domain/errors.ts';
import {
  type Job,
  type JobEvent,
  type JobResult,
  type Priority as PriorityName,
  priorities,
} from '../../domain/jobs/job.ts';
import { type State, states } from '../../domain/jobs/state-machine.ts';
import { noSuchValue } from '../wire/enums.ts';
import { encodeJob, encodeResult } from './encode.ts';

/** Converts jobs between the domain and the proto messages. */

const stateNames = new Map(states.map((state) => [JobState[state], state]));
const priorityNames = new Map(priorities.map((priority) => [Priority[priority], priority]));

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

/**
 * The messages of jobs and results: what `encode.ts` writes, decoded. The mapping of their fields exists
 * once, and only answers off the path of every job pay for the decoding.
 */
export const jobMessage = (job: Job): JobMessage => fromBinary(JobSchema, encodeJob(job));
export const resultMessage = (result: JobResult): JobResultMessage =>
  fromBinary(JobResultSchema, encodeResult(result));

export const eventMessage = (event: JobEvent): MessageInitShape<typeof JobEventSchema> =>
  create(JobEventSchema, {
    eventId: BigInt(event.eventId),
    ts: timestamp(event.tsMs),
    type: event.type,
    jobId: event.jobId,
    leaseId: event.leaseId ?? undefined,
    data: event.data,
  });
