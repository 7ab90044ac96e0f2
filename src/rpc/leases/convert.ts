import { fromBinary } from '@bufbuild/protobuf';
import type { Value } from '@bufbuild/protobuf/wkt';
import { FinalStatus, FinalStatusSchema } from '../../../gen/leasehold/v1/jobs_pb.js';
import {
  type LeaseError as LeaseErrorMessage,
  type Lease as LeaseMessage,
  LeaseSchema,
  LeaseState,
  LeaseStateSchema,
  type ReleaseLeaseRequest,
} from '../../../gen/leasehold/v1/leases_pb.js';
import { invalid } from '../../domain/errors.ts';
import { type FinalStatus as FinalStatusName, finalStatuses, type Json } from '../../domain/jobs/job.ts';
import type { Release } from '../../domain/leases/lease.ts';
import { type Lease, type LeaseState as LeaseStateName, leaseStates } from '../../domain/leases/lease.ts';
import { releaseOf } from '../../domain/leases/release.ts';
import { maxJsonDepth } from '../../domain/requests/json-check.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { LeaseError } from '../../domain/requests/scheduler.ts';
import { noSuchValue } from '../wire/enums.ts';
import { encodeLease } from './encode.ts';

/** Converts leases between the domain and the proto messages. */

const stateNames = new Map(leaseStates.map((state) => [LeaseState[state], state]));
const statusNames = new Map(finalStatuses.map((status) => [FinalStatus[status], status]));

export function toLeaseState(number: LeaseState, field: string): LeaseStateName {
  const state = stateNames.get(number);
  if (!state) throw noSuchValue(LeaseStateSchema, number, field);
  return state;
}

export function toFinalStatus(number: FinalStatus, field: string): FinalStatusName {
  const status = statusNames.get(number);
  if (!status) throw noSuchValue(FinalStatusSchema, number, field);
  return status;
}

/** Any JSON from its message; null if absent. The command's validator checks the content. */
export function toJson(value: Value | undefined, field: string, depth = 0): Json {
  if (depth > maxJsonDepth) throw invalid(field, `must not be nested more than ${maxJsonDepth} levels deep`);
  if (!value) return null;
  const { kind } = value;
  switch (kind.case) {
    case 'listValue':
      return kind.value.values.map((item) => toJson(item, field, depth + 1));
    case 'structValue': {
      const members = Object.entries(kind.value.fields);
      return Object.fromEntries(members.map(([key, member]) => [key, toJson(member, field, depth + 1)]));
    }
    case undefined:
    case 'nullValue':
      return null;
    default:
      return kind.value;
  }
}

/**
 * An error in the form that the command takes: its text alone if only the message is set, or else the fields
 * that are set.
 */
export function toLeaseError(error: LeaseErrorMessage | undefined): string | LeaseError | undefined {
  if (!error) return undefined;
  const { message, code, stack, retryable } = error;
  if (code === undefined && stack === undefined && retryable === undefined) return message;
  const said = Object.entries({ message, code, stack, retryable }).filter(([, value]) => value !== undefined);
  return Object.fromEntries(said);
}

/** The message of a lease without its token: what `encode.ts` writes, decoded. */
export const leaseMessage = (lease: Lease): LeaseMessage => fromBinary(LeaseSchema, encodeLease(lease));

/** Converts a release from its message. */
export function releaseOfMessage(request: Omit<ReleaseLeaseRequest, '$typeName'>): Release {
  const command = parse.releaseLease({
    worker_id: request.workerId,
    lease_token: request.leaseToken,
    job_id: request.jobId,
    status: toFinalStatus(request.status, 'status'),
    result_data: toJson(request.resultData, 'result_data'),
    error: toLeaseError(request.error),
    metrics: request.metrics,
  });
  return releaseOf(request.leaseId, command, { mayRetry: true });
}
