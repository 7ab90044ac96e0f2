/**
 * Encodes the responses on the path of every job, directly from the domain to the wire. Field numbers
 * come from the descriptors of `jobs.proto`; the tests decode every response with the generated code.
 */
import {
  ClaimJobsResponseSchema,
  FinalStatus,
  JobResultSchema,
  JobSchema,
  JobState,
  Priority,
  SubmitErrorSchema,
  SubmitJobResponseSchema,
  SubmitJobsResponseSchema,
  SubmitOutcomeSchema,
  SubmittedJobSchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { DomainError } from '../../domain/errors.ts';
import type { Job, JobResult } from '../../domain/jobs/job.ts';
import type { Submitted } from '../../engine/jobs/submitter.ts';
import { numbersOf } from '../wire/fields.ts';
import { WireWriter } from '../wire/writer.ts';

const submitField = numbersOf(SubmitJobResponseSchema);
const claimField = numbersOf(ClaimJobsResponseSchema);
const batchField = numbersOf(SubmitJobsResponseSchema);
const outcomeField = numbersOf(SubmitOutcomeSchema);
const submittedField = numbersOf(SubmittedJobSchema);
const errorField = numbersOf(SubmitErrorSchema);
const jobField = numbersOf(JobSchema);
const resultField = numbersOf(JobResultSchema);

/**
 * A response that is encoded already. `rpc/grpc/server.ts` sends the bytes unchanged.
 * `rpc/connect/handler.ts` decodes them for clients that use JSON.
 */
export class EncodedMessage {
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }
}

/** One writer for all responses: a message is always complete before the next one begins. */
export const writer = new WireWriter();

export const encoded = (write: () => void): EncodedMessage => new EncodedMessage(writer.encode(write));

/** A SubmitJobResponse. */
export const submitJobResponse = (job: Job, existing: boolean): EncodedMessage =>
  encoded(() => {
    writeJob(submitField.job, job);
    writer.whole(submitField.existing, existing ? 1 : 0);
  });

/** A ClaimJobsResponse. */
export const claimJobsResponse = (jobs: readonly Job[]): EncodedMessage =>
  encoded(() => {
    for (const job of jobs) writeJob(claimField.jobs, job);
  });

/** A SubmitJobsResponse. */
export const submitJobsResponse = (answers: readonly (Submitted | DomainError)[]): EncodedMessage =>
  encoded(() => {
    for (const answer of answers) writer.message(batchField.outcomes, () => writeOutcome(answer));
  });

function writeOutcome(answer: Submitted | DomainError): void {
  if (answer instanceof DomainError) {
    writer.message(outcomeField.error, () => {
      writer.text(errorField.code, answer.code);
      writer.text(errorField.detail, answer.detail);
      if (answer.field !== undefined) writer.presentText(errorField.field, answer.field);
      if (answer.jobId !== undefined) writer.presentText(errorField.jobId, answer.jobId);
    });
  } else {
    writer.message(outcomeField.submitted, () => {
      writer.text(submittedField.jobId, answer.jobId);
      writer.timestamp(submittedField.createdAt, answer.createdAtMs);
      writer.whole(submittedField.existing, answer.existing ? 1 : 0);
    });
  }
}

/** The content of a Job. */
export const encodeJob = (job: Job): Buffer => writer.encode(() => writeFields(job));

/** The content of a JobResult. */
export const encodeResult = (result: JobResult): Buffer => writer.encode(() => writeResultFields(result));

export const writeJob = (field: number, job: Job): void => writer.message(field, () => writeFields(job));

export const writeResult = (field: number, result: JobResult): void =>
  writer.message(field, () => writeResultFields(result));

function writeFields(job: Job): void {
  writer.text(jobField.jobId, job.jobId);
  writer.text(jobField.addonId, job.addonId);
  writer.text(jobField.jobType, job.jobType);
  writer.whole(jobField.priority, Priority[job.priority]);
  writer.whole(jobField.costUnits, job.costUnits);
  writer.struct(jobField.constraints, job.constraints);
  writer.struct(jobField.payload, job.payload);
  writer.whole(jobField.state, JobState[job.state]);
  writer.timestamp(jobField.createdAt, job.createdAtMs);
  writer.timestamp(jobField.updatedAt, job.updatedAtMs);
  text(jobField.claimedBy, job.claimedBy);
  time(jobField.claimExpiresAt, job.claimExpiresAtMs);
  text(jobField.leaseId, job.leaseId);
  writer.whole(jobField.attempts, job.attempts);
  time(jobField.nextRetryAt, job.nextRetryAtMs);
  text(jobField.clientRequestId, job.clientRequestId);
  text(jobField.stream, job.stream);
  writer.whole(jobField.unique, job.unique ? 1 : 0);
  for (const tag of job.tags) writer.presentText(jobField.tags, tag);
  if (job.maxRuntimeS !== null) writer.presentWhole(jobField.maxRuntimeS, job.maxRuntimeS);
  writer.whole(jobField.maxAttempts, job.maxAttempts);
  writer.whole(jobField.retryBackoffS, job.retryBackoffS);
  time(jobField.runAt, job.runAtMs);
  writer.whole(jobField.cancelRequested, job.cancelRequested ? 1 : 0);
  if (job.progress !== null) writer.double(jobField.progress, job.progress);
  text(jobField.note, job.note);
  writer.whole(jobField.deadLettered, job.deadLettered ? 1 : 0);
}

function writeResultFields(result: JobResult): void {
  writer.text(resultField.jobId, result.jobId);
  writer.whole(resultField.status, FinalStatus[result.status]);
  if (result.resultData !== null) writer.value(resultField.resultData, result.resultData);
  text(resultField.error, result.error);
  if (result.errorDetail !== null) writer.struct(resultField.errorDetail, result.errorDetail);
  time(resultField.startedAt, result.startedAtMs);
  writer.timestamp(resultField.finishedAt, result.finishedAtMs);
  writer.whole(resultField.attempts, result.attempts);
  if (result.metrics !== null) writer.struct(resultField.metrics, result.metrics);
}

const text = (field: number, value: string | null): void => {
  if (value !== null) writer.presentText(field, value);
};

const time = (field: number, ms: number | null): void => {
  if (ms !== null) writer.timestamp(field, ms);
};
