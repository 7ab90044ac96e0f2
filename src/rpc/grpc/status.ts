import type { ConnectError } from '@connectrpc/connect';
import { type Deadline, type status as grpcStatus, Metadata, type StatusObject } from '@grpc/grpc-js';
import { DomainError } from '../../domain/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { Carrier, RunningCall } from '../../telemetry/call-metrics.ts';
import { endCall } from '../call-outcome.ts';
import { statusBytes } from '../errors.ts';

type GrpcStatus = (typeof grpcStatus)[keyof typeof grpcStatus];

/** The trailer from which all clients read the details of an error. */
export const detailsKey = 'grpc-status-details-bin';

/** An error as a gRPC status, with its details. */
export function statusOf(error: ConnectError): StatusObject {
  const metadata = new Metadata();
  metadata.set(detailsKey, statusBytes(error));
  // Connect's codes are gRPC's, number by number.
  return { code: error.code as number as GrpcStatus, details: error.rawMessage, metadata };
}

/**
 * Sends an error. A failure while doing so must not end the process: the caller then gets a status without
 * details.
 */
export function sendError(tell: (status: StatusObject) => void, status: () => StatusObject, log: Log): void {
  try {
    tell(status());
  } catch (error) {
    log.error('an error could not be sent', { error });
    const details = 'internal: something went wrong on the server';
    tell({ code: 13 as GrpcStatus, details, metadata: new Metadata() });
  }
}

/** The reason why a call was cancelled: grpc-js also cancels it when its deadline has passed. */
export const goneBecause = (deadline: Deadline): DomainError =>
  Number(deadline) <= Date.now()
    ? new DomainError('deadline_exceeded', 'the deadline has passed')
    : new DomainError('canceled', 'the caller has gone');

/** The metadata of a call, in the form that traces read. */
export const carrierOf =
  (metadata: Metadata): Carrier =>
  (name) =>
    metadata.get(name)[0]?.toString();

/** Ends the call's measurement with the status that the caller gets. */
export const endWithError =
  (running: RunningCall, tell: (status: StatusObject) => void) =>
  (status: StatusObject): void => {
    endCall(running, status.code);
    tell(status);
  };
