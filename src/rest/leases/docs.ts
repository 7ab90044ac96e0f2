/** Documentation of the queue contract's Leases API. */
import Type from 'typebox';
import { Heartbeat, ReleaseLease, RequestLease } from '../../domain/requests/scheduler.ts';
import { JobAndResult } from '../jobs/docs.ts';
import { JobIntent } from '../jobs/schemas.ts';
import { doneJob, job, lease, releasedLease, result, runningJob, token } from '../openapi/examples.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { Approval, LeaseRecord } from './schemas.ts';

export const leaseAbout = operations('Queue: leases', {
  requestLease: {
    summary: 'Request the lease of a claimed job',
    details:
      'The job’s own type, weight, priority and constraints stand, whatever is sent of them. A denied job waits as LEASE_PENDING and keeps its claim.',
    body: requestBody(RequestLease, { job_id: job.job_id, addon_id: 'visuals', ttl_sec: 30 }),
    answers: {
      200: answer(
        'Granted, or denied and why.',
        Approval,
        {
          approved: true,
          lease: { ...lease, lease_token: token },
          job: runningJob,
          heartbeat_within_ms: 30_000,
        },
        {
          approved: false,
          retry_after_sec: 10,
          reason: 'Capacity exceeded: used=60, requested=30, capacity=70',
        },
      ),
    },
    errors: ['job_not_found', 'job_not_claimed', 'worker_mismatch', 'job_mismatch'],
  },
  heartbeat: {
    summary: 'Extend a lease',
    body: requestBody(Heartbeat, {
      job_id: job.job_id,
      worker_id: 'visuals-worker-01',
      progress: 0.65,
      message: 'rendering step 23/35',
    }),
    answers: {
      200: answer('The lease and its job.', Type.Object({ lease: LeaseRecord, job: JobIntent }), {
        lease,
        job: runningJob,
      }),
    },
    errors: [
      'lease_not_found',
      'job_not_found',
      'worker_mismatch',
      'token_mismatch',
      'job_mismatch',
      'lease_not_active',
    ],
  },
  releaseLease: {
    summary: 'End a lease, and with it the job',
    body: requestBody(ReleaseLease, {
      job_id: job.job_id,
      worker_id: 'visuals-worker-01',
      status: 'SUCCEEDED',
      result_data: { path: '/runtime/out.jpg' },
      error: null,
      metrics: { runtime_ms: 41234, peak_mem_mb: 2870 },
    }),
    answers: {
      200: answer(
        'The lease, its job, and what came of it.',
        Type.Object({ lease: LeaseRecord, ...JobAndResult.properties }),
        { lease: releasedLease, job: doneJob, result },
      ),
    },
    errors: [
      'lease_not_found',
      'job_not_found',
      'worker_mismatch',
      'token_mismatch',
      'job_mismatch',
      'lease_not_active',
    ],
  },
  getLease: {
    summary: 'Read a lease',
    answers: { 200: answer('The lease.', Type.Object({ lease: LeaseRecord }), { lease }) },
    errors: ['lease_not_found', 'job_not_found'],
  },
});
