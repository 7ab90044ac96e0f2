/**
 * Encodes the responses on leases that are on the path of every job, directly from the domain to the wire, as
 * in `rpc/jobs/encode.ts`. Field numbers come from the descriptors.
 */
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  AcquireLeaseResponseSchema,
  HeartbeatResponseSchema,
  LeaseDenialSchema,
  LeaseGrantSchema,
  LeaseSchema,
  LeaseState,
  ReleaseLeaseResponseSchema,
  StreamMessageSchema,
} from '../../../gen/leasehold/v1/leases_pb.js';
import type { Extended, Grant, Lease, LeaseOutcome, Released } from '../../domain/leases/lease.ts';
import { type EncodedMessage, encoded, writeJob, writeResult, writer } from '../jobs/encode.ts';
import { numbersOf } from '../wire/fields.ts';

const outcomeField = numbersOf(AcquireLeaseResponseSchema);
const denialField = numbersOf(LeaseDenialSchema);
const grantField = numbersOf(LeaseGrantSchema);
const heartbeatField = numbersOf(HeartbeatResponseSchema);
const releaseField = numbersOf(ReleaseLeaseResponseSchema);
const leaseField = numbersOf(LeaseSchema);
const messageField = numbersOf(StreamMessageSchema);

/** A RequestLeaseResponse or an AcquireLeaseResponse: their encodings are the same. */
export const leaseOutcomeResponse = (outcome: LeaseOutcome): EncodedMessage =>
  encoded(() => {
    if (outcome.kind === 'granted') {
      writeGrant(outcomeField.granted, outcome);
    } else {
      writer.message(outcomeField.denied, () => {
        writer.text(denialField.reason, outcome.reason);
        writer.whole(denialField.retryAfterMs, Math.ceil(outcome.retryAfterMs));
      });
    }
  });

/** A LeaseGrant. */
export function writeGrant(field: number, grant: Grant): void {
  const { lease, token, job, messageId } = grant;
  writer.message(field, () => {
    writeLease(grantField.lease, lease, token);
    writeJob(grantField.job, job);
    if (job.stream !== null && messageId !== null)
      writeMessage(grantField.streamMessage, job.stream, messageId);
    writer.whole(grantField.heartbeatWithinMs, grant.heartbeatWithinMs);
  });
}

/** A HeartbeatResponse. */
export const heartbeatResponse = (extended: Extended, drain: boolean): EncodedMessage =>
  encoded(() => {
    writer.timestamp(heartbeatField.expiresAt, extended.expiresAtMs);
    writer.whole(heartbeatField.ttlRemainingMs, Math.max(0, Math.floor(extended.ttlRemainingMs)));
    writer.whole(heartbeatField.cancelRequested, extended.cancelRequested ? 1 : 0);
    writer.whole(heartbeatField.drain, drain ? 1 : 0);
  });

/** A ReleaseLeaseResponse. */
export const releaseLeaseResponse = ({ lease, job, result }: Released): EncodedMessage =>
  encoded(() => {
    writeLease(releaseField.lease, lease, null);
    writeJob(releaseField.job, job);
    if (result !== null) writeResult(releaseField.result, result);
    writer.whole(releaseField.requeued, lease.requeued ? 1 : 0);
    writer.whole(releaseField.deadLettered, lease.deadLettered ? 1 : 0);
  });

/** The content of a Lease without its token. */
export const encodeLease = (lease: Lease): Buffer => writer.encode(() => writeLeaseFields(lease, null));

const writeLease = (field: number, lease: Lease, token: string | null): void =>
  writer.message(field, () => writeLeaseFields(lease, token));

function writeLeaseFields(lease: Lease, token: string | null): void {
  writer.text(leaseField.leaseId, lease.leaseId);
  writer.text(leaseField.jobId, lease.jobId);
  writer.text(leaseField.addonId, lease.addonId);
  writer.text(leaseField.workerId, lease.workerId);
  writer.whole(leaseField.costUnits, lease.costUnits);
  writer.whole(leaseField.ttlSec, lease.ttlS);
  writer.whole(leaseField.state, LeaseState[lease.state]);
  writer.timestamp(leaseField.grantedAt, lease.grantedAtMs);
  writer.timestamp(leaseField.lastHeartbeatAt, lease.lastHeartbeatAtMs);
  writer.timestamp(leaseField.expiresAt, lease.expiresAtMs);
  writer.whole(leaseField.fence, Number(lease.fence));
  writer.whole(leaseField.attempt, lease.attempt);
  if (lease.endedAtMs !== null) writer.timestamp(leaseField.endedAt, lease.endedAtMs);
  if (lease.releaseStatus !== null) writer.whole(leaseField.releaseStatus, FinalStatus[lease.releaseStatus]);
  if (token !== null) writer.presentText(leaseField.leaseToken, token);
  if (lease.error !== null) writer.presentText(leaseField.error, lease.error);
  if (lease.errorDetail !== null) writer.struct(leaseField.errorDetail, lease.errorDetail);
  writer.whole(leaseField.requeued, lease.requeued ? 1 : 0);
  writer.whole(leaseField.deadLettered, lease.deadLettered ? 1 : 0);
}

function writeMessage(field: number, stream: string, messageId: string): void {
  writer.message(field, () => {
    writer.text(messageField.stream, stream);
    writer.text(messageField.messageId, messageId);
  });
}
