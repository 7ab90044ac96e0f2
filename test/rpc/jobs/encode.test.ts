import { create, equals, fromBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import fc from 'fast-check';
import {
  ClaimJobsResponseSchema,
  SubmitJobResponseSchema,
  SubmitJobsResponseSchema,
} from '../../../gen/leasehold/v1/jobs_pb.js';
import { DomainError } from '../../../src/domain/errors.ts';
import type { Job } from '../../../src/domain/jobs/job.ts';
import { timestamp } from '../../../src/rpc/jobs/convert.ts';
import { claimJobsResponse, submitJobResponse, submitJobsResponse } from '../../../src/rpc/jobs/encode.ts';
import { anyJob } from '../../support/any-job.ts';
import { expectedJob } from '../../support/expected-messages.ts';

describe('the encoder of job answers', () => {
  it('encodes any job such that the generated code decodes it', () => {
    fc.assert(
      fc.property(anyJob, fc.boolean(), (job, existing) => {
        const read = fromBinary(SubmitJobResponseSchema, submitJobResponse(job, existing).bytes);
        const expected = create(SubmitJobResponseSchema, { job: expectedJob(job), existing });
        expect(equals(SubmitJobResponseSchema, read, expected)).to.equal(true);
      }),
      { numRuns: 300 },
    );
  });

  it('encodes any number of jobs, also beyond the first size of the buffer', () => {
    const [job] = fc.sample(anyJob, 1) as [Job];
    const jobs = Array.from({ length: 50 }, (_, i) => ({ ...job, payload: { long: 'é'.repeat(i * 100) } }));
    const read = fromBinary(ClaimJobsResponseSchema, claimJobsResponse(jobs).bytes);
    const expected = create(ClaimJobsResponseSchema, { jobs: jobs.map(expectedJob) });
    expect(equals(ClaimJobsResponseSchema, read, expected)).to.equal(true);
    expect(claimJobsResponse([]).bytes).to.have.length(0);
  });

  it('encodes the outcome of every job of a batch', () => {
    const { bytes } = submitJobsResponse([
      { jobId: 'a', createdAtMs: 1_234, existing: true },
      new DomainError('invalid_request', 'x: is bad', { field: 'x', jobId: 'b' }),
      new DomainError('payload_too_large', ''),
    ]);
    const value = { jobId: 'a', createdAt: timestamp(1_234), existing: true };
    const refused = { code: 'invalid_request', detail: 'x: is bad', field: 'x', jobId: 'b' };
    const expected = create(SubmitJobsResponseSchema, {
      outcomes: [
        { outcome: { case: 'submitted', value } },
        { outcome: { case: 'error', value: refused } },
        { outcome: { case: 'error', value: { code: 'payload_too_large', detail: '' } } },
      ],
    });
    const read = fromBinary(SubmitJobsResponseSchema, bytes);
    expect(equals(SubmitJobsResponseSchema, read, expected)).to.equal(true);
  });
});
