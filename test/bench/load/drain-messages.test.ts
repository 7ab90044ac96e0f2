import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  AcquireLeaseResponseSchema,
  ReleaseLeaseRequestSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { granted, Releases } from './drain-messages.ts';

const leaseId = '0190a1b2-0000-7000-8000-00000000abcd';
const jobId = '0190a1b2-0000-7000-8000-00000000ef01';

const answer = (words: MessageInitShape<typeof AcquireLeaseResponseSchema>): Buffer =>
  Buffer.from(toBinary(AcquireLeaseResponseSchema, create(AcquireLeaseResponseSchema, words)));

const grantOf = (lease: object) =>
  answer({ outcome: { case: 'granted', value: { lease, job: { jobId, addonId: 'a'.repeat(300) } } } });

describe('what the load reads of leases', () => {
  it('is the ids of the lease and of its job, wherever their lengths put them', () => {
    for (const addonId of ['a', 'a'.repeat(200)]) {
      const found = granted(grantOf({ leaseId, jobId, addonId }));
      expect(found?.leaseId.toString()).to.equal(leaseId);
      expect(found?.jobId).to.equal(jobId);
    }
  });

  it('is nothing where the answer is a denial', () => {
    expect(granted(answer({ outcome: { case: 'denied', value: { reason: 'No jobs available' } } }))).to.equal(
      undefined,
    );
  });

  it('is an error where a grant looks otherwise', () => {
    expect(() => granted(grantOf({ jobId }))).to.throw(/does not begin/);
  });

  it('is what it releases, as its worker and for good', () => {
    const found = granted(grantOf({ leaseId, jobId }));
    if (!found) throw new Error('nothing was granted');
    const request = fromBinary(ReleaseLeaseRequestSchema, new Releases('worker-7').of(found.leaseId));
    expect(request).to.include({ leaseId, workerId: 'worker-7', status: FinalStatus.SUCCEEDED });
  });
});
