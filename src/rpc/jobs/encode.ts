/**
 * Encodes the responses on the path of every job, directly from the domain to the wire. Field numbers are
 * those of `jobs.proto`; the tests decode every response with the generated code.
 */
import { JobState, Priority } from '../../../gen/leasehold/v1/jobs_pb.js';
import { DomainError } from '../../domain/errors.ts';
import type { Job } from '../../domain/jobs/job.ts';
import type { Submitted } from '../../engine/jobs/submitter.ts';
import { WireWriter } from '../wire/writer.ts';

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
    writeJob(1, job);
    writer.whole(2, existing ? 1 : 0);
  });

/** A ClaimJobsResponse. */
export const claimJobsResponse = (jobs: readonly Job[]): EncodedMessage =>
  encoded(() => {
    for (const job of jobs) writeJob(1, job);
  });

/** A SubmitJobsResponse. */
export const submitJobsResponse = (answers: readonly (Submitted | DomainError)[]): EncodedMessage =>
  encoded(() => {
    for (const answer of answers) writer.message(1, () => writeOutcome(answer));
  });

function writeOutcome(answer: Submitted | DomainError): void {
  if (answer instanceof DomainError) {
    writer.message(2, () => {
      writer.text(1, answer.code);
      writer.text(2, answer.detail);
      if (answer.field !== undefined) writer.presentText(3, answer.field);
      if (answer.jobId !== undefined) writer.presentText(4, answer.jobId);
    });
  } else {
    writer.message(1, () => {
      writer.text(1, answer.jobId);
      writer.timestamp(2, answer.createdAtMs);
      writer.whole(3, answer.existing ? 1 : 0);
    });
  }
}

export function writeJob(field: number, job: Job): void {
  writer.message(field, () => {
    writer.text(1, job.jobId);
    writer.text(2, job.addonId);
    writer.text(3, job.jobType);
    writer.whole(4, Priority[job.priority]);
    writer.whole(5, job.costUnits);
    writer.struct(6, job.constraints);
    writer.struct(7, job.payload);
    writer.whole(8, JobState[job.state]);
    writer.timestamp(9, job.createdAtMs);
    writer.timestamp(10, job.updatedAtMs);
    text(11, job.claimedBy);
    time(12, job.claimExpiresAtMs);
    text(13, job.leaseId);
    writer.whole(14, job.attempts);
    time(15, job.nextRetryAtMs);
    text(16, job.clientRequestId);
    text(17, job.stream);
    writer.whole(18, job.unique ? 1 : 0);
    for (const tag of job.tags) writer.presentText(19, tag);
    if (job.maxRuntimeS !== null) writer.presentWhole(20, job.maxRuntimeS);
    writer.whole(21, job.maxAttempts);
    writer.whole(22, job.retryBackoffS);
    time(23, job.runAtMs);
    writer.whole(24, job.cancelRequested ? 1 : 0);
    if (job.progress !== null) writer.double(25, job.progress);
    text(26, job.note);
    writer.whole(27, job.deadLettered ? 1 : 0);
  });
}

const text = (field: number, value: string | null): void => {
  if (value !== null) writer.presentText(field, value);
};

const time = (field: number, ms: number | null): void => {
  if (ms !== null) writer.timestamp(field, ms);
};
