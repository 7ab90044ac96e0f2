/**
 * The messages of jobs, results and leases as the generated code makes them, for comparison with what is
 * encoded by hand. The fields of a job follow from the proto and from the table of fields.
 */
import { create, fromJson } from '@bufbuild/protobuf';
import { ValueSchema } from '@bufbuild/protobuf/wkt';
import {
  FinalStatus,
  type Job as JobMessage,
  type JobResult as JobResultMessage,
  JobResultSchema,
  JobSchema,
  JobState,
  Priority,
} from '../../gen/leasehold/v1/jobs_pb.js';
import { type Lease as LeaseMessage, LeaseSchema, LeaseState } from '../../gen/leasehold/v1/leases_pb.js';
import { type Job, type JobResult, jobFields } from '../../src/domain/jobs/job.ts';
import type { JobField } from '../../src/domain/jobs/job-fields.ts';
import type { Lease } from '../../src/domain/leases/lease.ts';
import { timestamp } from '../../src/rpc/jobs/convert.ts';

/** The message of a job. Throws if the table or the job lacks a field. */
export function expectedJob(job: Job): JobMessage {
  const values = JobSchema.fields.map(({ name, localName }) => {
    const field = (jobFields as Readonly<Record<string, JobField>>)[name];
    if (!field) throw new Error(`jobFields lacks ${name}`);
    return [localName, protoValueOf(field, job)];
  });
  return create(JobSchema, Object.fromEntries(values));
}

function protoValueOf({ property, kind }: JobField, job: Job): unknown {
  const value = job[property];
  if (value === undefined) throw new Error(`the job has no ${property}`);
  if (value === null) return undefined;
  if (kind === 'time') return timestamp(value as number);
  if (kind === 'state') return JobState[job.state];
  if (kind === 'priority') return Priority[job.priority];
  return value;
}

const optional = (ms: number | null) => (ms === null ? undefined : timestamp(ms));

export const expectedResult = (result: JobResult): JobResultMessage =>
  create(JobResultSchema, {
    jobId: result.jobId,
    status: FinalStatus[result.status],
    resultData: result.resultData === null ? undefined : fromJson(ValueSchema, result.resultData),
    error: result.error ?? undefined,
    errorDetail: result.errorDetail ?? undefined,
    startedAt: optional(result.startedAtMs),
    finishedAt: timestamp(result.finishedAtMs),
    attempts: result.attempts,
    metrics: result.metrics ?? undefined,
  });

export const expectedLease = (lease: Lease): LeaseMessage =>
  create(LeaseSchema, {
    leaseId: lease.leaseId,
    jobId: lease.jobId,
    addonId: lease.addonId,
    workerId: lease.workerId,
    costUnits: lease.costUnits,
    ttlSec: lease.ttlS,
    state: LeaseState[lease.state],
    grantedAt: timestamp(lease.grantedAtMs),
    lastHeartbeatAt: timestamp(lease.lastHeartbeatAtMs),
    expiresAt: timestamp(lease.expiresAtMs),
    fence: BigInt(lease.fence),
    attempt: lease.attempt,
    endedAt: lease.endedAtMs === null ? undefined : timestamp(lease.endedAtMs),
    releaseStatus: lease.releaseStatus === null ? undefined : FinalStatus[lease.releaseStatus],
    error: lease.error ?? undefined,
    errorDetail: lease.errorDetail ?? undefined,
    requeued: lease.requeued,
    deadLettered: lease.deadLettered,
  });
