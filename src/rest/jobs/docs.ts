import Type from 'typebox';
import {
  ClaimJobs,
  ListJobEvents,
  ListJobsQuery,
  OperatorRequest,
  SubmitJob,
  UpdateJobStatus,
} from '../../domain/requests/scheduler.ts';
import { claimedJob, doneJob, job, result } from '../openapi/examples.ts';
import { answer, nothing, operations, requestBody } from '../openapi/operation.ts';
import { list, nextCursor, orNull } from '../openapi/schema-types.ts';
import { JobHappening, JobIntent, JobOutcome } from './schemas.ts';

/** Documentation of the queue contract's Jobs API. */

const OneJob = Type.Object({ job: JobIntent });
export const JobAndResult = Type.Object({ job: JobIntent, result: orNull(JobOutcome) });

export const queueAbout = operations('Queue: jobs', {
  submitJob: {
    summary: 'Submit a job',
    details:
      'With a `client_request_id` it is safe to ask again: a second time it is refused with the first job’s id.',
    body: requestBody(SubmitJob, {
      addon_id: 'visuals',
      job_type: 'load30',
      priority: 'NORMAL',
      cost_units: 30,
      constraints: { cpu_heavy: true },
      payload: { model: 'sdxl', prompt: 'a cat' },
      client_request_id: 'order-17',
    }),
    answers: { 201: answer('The job.', OneJob, { job }) },
    errors: ['duplicate_request', 'quota_exceeded'],
  },
  claimJobs: {
    summary: 'Claim a job, or several',
    details: 'The most urgent first, then the oldest. A claim runs out unless the job is leased in time.',
    body: requestBody(ClaimJobs, {
      addon_id: 'visuals',
      worker_id: 'visuals-worker-01',
      limit: 1,
      accept_job_types: ['load30', 'render_image'],
      max_cost_units: 40,
      constraints_capabilities: { gpu_available: false },
    }),
    answers: {
      200: answer(
        'The first job, and all of them where more than one was asked for.',
        Type.Object({
          job: JobIntent,
          jobs: Type.Optional(list(JobIntent, 'All that were claimed; there where `limit` is more than 1.')),
        }),
        { job: claimedJob },
      ),
      204: nothing('There is none.'),
    },
    errors: [],
  },
  listJobs: {
    summary: 'List jobs, the newest first',
    query: ListJobsQuery,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ jobs: list(JobIntent, 'The jobs.'), next_cursor: nextCursor }),
        { jobs: [job], next_cursor: null },
      ),
    },
    errors: [],
  },
  getJob: {
    summary: 'Read a job and its result',
    answers: {
      200: answer(
        'The job, and what came of it.',
        JobAndResult,
        { job, result: null },
        { job: doneJob, result },
      ),
    },
    errors: ['job_not_found'],
  },
  updateJobStatus: {
    summary: 'Report the progress or the state of a job, or requeue it',
    details:
      'The present state updates `note` and `progress`; QUEUED gives a claimed job back. ' +
      'An ended job does not change.',
    body: requestBody(UpdateJobStatus, { state: 'PREPARING', note: 'warming model cache', progress: 0.15 }),
    answers: {
      200: answer('The job.', OneJob, {
        job: { ...claimedJob, state: 'PREPARING', note: 'warming model cache', progress: 0.15 },
      }),
    },
    errors: ['job_not_found', 'worker_mismatch', 'job_not_claimed', 'lease_not_active', 'illegal_transition'],
  },
  cancelJob: {
    summary: 'Cancel a job',
    details: 'A leased job is not revoked: the answer to the next heartbeat asks its worker to stop.',
    body: requestBody(OperatorRequest, { reason: 'user aborted' }),
    answers: { 200: answer('The job.', OneJob, { job: { ...job, state: 'CANCELED' } }) },
    errors: ['job_not_found', 'illegal_transition'],
  },
  retryJob: {
    summary: 'Retry a job that is FAILED, TIMEOUT or CANCELED',
    body: requestBody(OperatorRequest, { reason: 'the disk is repaired', requested_by: 'ann' }),
    answers: { 200: answer('The job.', OneJob, { job: { ...job, attempts: 1, max_attempts: 2 } }) },
    errors: ['job_not_found', 'illegal_transition'],
  },
  listJobEvents: {
    summary: 'List the events of a job, the oldest first',
    query: ListJobEvents,
    answers: {
      200: answer(
        'A page of it.',
        Type.Object({ events: list(JobHappening, 'What happened.'), next_cursor: nextCursor }),
        {
          events: [
            {
              event_id: '1',
              ts: '2025-12-28T20:15:00.000Z',
              type: 'JOB_SUBMITTED',
              lease_id: null,
              data: { priority: 'NORMAL' },
            },
            {
              event_id: '2',
              ts: '2025-12-28T20:16:00.000Z',
              type: 'JOB_CLAIMED',
              lease_id: null,
              data: { worker_id: 'visuals-worker-01' },
            },
          ],
          next_cursor: null,
        },
      ),
    },
    errors: ['job_not_found'],
  },
});
