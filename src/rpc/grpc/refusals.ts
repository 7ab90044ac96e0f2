/**
 * Counts the calls that grpc-js refuses itself: messages that are too large, have an unknown compression, or
 * do not come in the expected number. No handler sees such a call, so it is counted here.
 */
import { status as codes, type Metadata, type ServerInterceptingCallInterface } from '@grpc/grpc-js';
import { DomainError } from '../../domain/errors.ts';
import type { CallMeter } from '../../telemetry/call-metrics.ts';
import { endCall } from '../call-outcome.ts';
import { toConnectError } from '../errors.ts';
import { detailsKey, statusOf } from './status.ts';

/** Calls `tell` for each status that the server's own code did not make, before the status is sent. */
export function onRefusal(call: ServerInterceptingCallInterface, tell: (code: number) => void): void {
  const send = call.sendStatus;
  call.sendStatus = (status) => {
    if (!isRefusal(status)) {
      send.call(call, status);
      return;
    }
    const blamed = blameClient(status);
    tell(blamed.code as number);
    send.call(call, blamed);
  };
}

type PartialStatusObject = Parameters<ServerInterceptingCallInterface['sendStatus']>[0];

/** The texts with which grpc-js blames the server for a request that it cannot read. */
const clientFaults = /^(Invalid grpc-timeout|Failed to decompress|Error deserializing request)/;

function blameClient(status: PartialStatusObject): PartialStatusObject {
  const { code, details } = status;
  if (code !== codes.INTERNAL || !details || !clientFaults.test(details)) return status;
  const words = `${details[0]?.toLowerCase()}${details.slice(1)}`;
  return statusOf(toConnectError(new DomainError('invalid_request', words)));
}

/**
 * Statuses of this server carry details. A passed deadline is reported to the handler of the call, which
 * counts it.
 */
const isRefusal = ({ code, metadata }: { code?: number | null; metadata?: Metadata | null }): boolean =>
  code !== codes.OK && code !== codes.DEADLINE_EXCEEDED && !metadata?.get(detailsKey).length;

/** Counts calls that no handler sees. */
export function countRefusals(call: ServerInterceptingCallInterface, meter: CallMeter): void {
  onRefusal(call, (code) => endCall(meter.begin(noCarrier), code));
}

const noCarrier = (): undefined => undefined;
