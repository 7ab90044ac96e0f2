/**
 * What grpc-js refuses by itself: messages that are too large, that are compressed in a way it does not know, or that do
 * not come in the number they should. No handler gets to see such a call, and somebody has to count it.
 */
import { status as codes, type Metadata, type ServerInterceptingCallInterface } from '@grpc/grpc-js';
import { DomainError } from '../../domain/errors.ts';
import type { CallMeter } from '../../telemetry/call-metrics.ts';
import { endCall } from '../call-outcome.ts';
import { toConnectError } from '../errors.ts';
import { detailsKey, statusOf } from './status.ts';

/** Tells of a status that is none of ours, just before the caller is told. */
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

/** What grpc-js says of a request that it cannot read, as if the server were at fault. */
const clientFaults = /^(Invalid grpc-timeout|Failed to decompress|Error deserializing request)/;

function blameClient(status: PartialStatusObject): PartialStatusObject {
  const { code, details } = status;
  if (code !== codes.INTERNAL || !details || !clientFaults.test(details)) return status;
  const words = `${details[0]?.toLowerCase()}${details.slice(1)}`;
  return statusOf(toConnectError(new DomainError('invalid_request', words)));
}

/** Ours carry details. A deadline that has passed is told to whoever serves the call, who counts it. */
const isRefusal = ({ code, metadata }: { code?: number | null; metadata?: Metadata | null }): boolean =>
  code !== codes.OK && code !== codes.DEADLINE_EXCEEDED && !metadata?.get(detailsKey).length;

/** Counts calls that no handler gets to see. */
export function countRefusals(call: ServerInterceptingCallInterface, meter: CallMeter): void {
  onRefusal(call, (code) => endCall(meter.begin(noCarrier), code));
}

const noCarrier = (): undefined => undefined;
