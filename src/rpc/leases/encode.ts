/**
 * Encodes the responses on leases that are on the path of every job, directly from the domain to the wire, as
 * in `rpc/jobs/encode.ts`. Field numbers are those of `leases.proto` and `jobs.proto`.
 */
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import { LeaseState } from '../../../gen/leasehold/v1/leases_pb.js';
import type { JobResult } from '../../domain/jobs/job.ts';
import type { Extended, Grant, Lease, LeaseOutcome, Released } from '../../domain/leases/lease.ts';
import { type EncodedMessage, encoded, writeJob, writer } from '../jobs/encode.ts';

/** A RequestLeaseResponse or an AcquireLeaseResponse: their encodings are the same. */
export const leaseOutcomeResponse = (outcome: LeaseOutcome): EncodedMessage =>
  encoded(() => {
    if (outcome.kind === 'granted') {
      writeGrant(1, outcome);
    } else {
      writer.message(2, () => {
        writer.text(1, outcome.reason);
        writer.whole(2, Math.ceil(outcome.retryAfterMs));
      });
    }
  });

/** A LeaseGrant. */
export function writeGrant(field: number, grant: Grant): void {
  const { lease, token, job, messageId } = grant;
  writer.message(field, () => {
    writeLease(1, lease, token);
    writeJob(2, job);
    if (job.stream !== null && messageId !== null) writeMessage(3, job.stream, messageId);
    writer.whole(4, grant.heartbeatWithinMs);
  });
}

/** A HeartbeatResponse. */
export const heartbeatResponse = (extended: Extended, drain: boolean): EncodedMessage =>
  encoded(() => {
    writer.timestamp(1, extended.expiresAtMs);
    writer.whole(2, Math.max(0, Math.floor(extended.ttlRemainingMs)));
    writer.whole(3, extended.cancelRequested ? 1 : 0);
    writer.whole(4, drain ? 1 : 0);
  });

/** A ReleaseLeaseResponse. */
export const releaseLeaseResponse = ({ lease, job, result }: Released): EncodedMessage =>
  encoded(() => {
    writeLease(1, lease);
    writeJob(2, job);
    if (result !== null) writeResult(3, result);
    writer.whole(4, lease.requeued ? 1 : 0);
    writer.whole(5, lease.deadLettered ? 1 : 0);
  });

function writeLease(field: number, lease: Lease, token?: string): void {
  writer.message(field, () => {
    writer.text(1, lease.leaseId);
    writer.text(2, lease.jobId);
    writer.text(3, lease.addonId);
    writer.text(4, lease.workerId);
    writer.whole(5, lease.costUnits);
    writer.whole(6, lease.ttlS);
    writer.whole(7, LeaseState[lease.state]);
    writer.timestamp(8, lease.grantedAtMs);
    writer.timestamp(9, lease.lastHeartbeatAtMs);
    writer.timestamp(10, lease.expiresAtMs);
    writer.whole(11, Number(lease.fence));
    writer.whole(12, lease.attempt);
    if (lease.endedAtMs !== null) writer.timestamp(13, lease.endedAtMs);
    if (lease.releaseStatus !== null) writer.whole(14, FinalStatus[lease.releaseStatus]);
    if (token !== undefined) writer.presentText(15, token);
    if (lease.error !== null) writer.presentText(16, lease.error);
    if (lease.errorDetail !== null) writer.struct(17, lease.errorDetail);
    writer.whole(18, lease.requeued ? 1 : 0);
    writer.whole(19, lease.deadLettered ? 1 : 0);
  });
}

function writeMessage(field: number, stream: string, messageId: string): void {
  writer.message(field, () => {
    writer.text(1, stream);
    writer.text(2, messageId);
  });
}

function writeResult(field: number, result: JobResult): void {
  writer.message(field, () => {
    writer.text(1, result.jobId);
    writer.whole(2, FinalStatus[result.status]);
    if (result.resultData !== null) writer.value(3, result.resultData);
    if (result.error !== null) writer.presentText(4, result.error);
    if (result.errorDetail !== null) writer.struct(5, result.errorDetail);
    if (result.startedAtMs !== null) writer.timestamp(6, result.startedAtMs);
    writer.timestamp(7, result.finishedAtMs);
    writer.whole(8, result.attempts);
    if (result.metrics !== null) writer.struct(9, result.metrics);
  });
}
