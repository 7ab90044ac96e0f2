/**
 * What grpc-js refuses by itself: messages that are too large, that are compressed in a way it does not know, or that do
 * not come in the number they should. No handler gets to see such a call, and somebody has to count it.
 */
import { status as codes, type Metadata, type ServerInterceptingCallInterface } from '@grpc/grpc-js';
import type { CallMeter } from '../telemetry/calls.ts';
import { endCall } from './call-ends.ts';
import { detailsKey } from './grpc-status.ts';

/** Tells of a status that is none of ours, just before the caller is told. */
export function onRefusal(call: ServerInterceptingCallInterface, tell: (code: number) => void): void {
  const send = call.sendStatus;
  call.sendStatus = (status) => {
    if (isRefusal(status)) tell(status.code as number);
    send.call(call, status);
  };
}

/** Ours carry details. A deadline that has passed is told to whoever serves the call, who counts it. */
const isRefusal = ({ code, metadata }: { code?: number | null; metadata?: Metadata | null }): boolean =>
  code !== codes.OK && code !== codes.DEADLINE_EXCEEDED && !metadata?.get(detailsKey).length;

/** Counts calls that no handler gets to see. */
export function countRefusals(call: ServerInterceptingCallInterface, meter: CallMeter): void {
  onRefusal(call, (code) => endCall(meter.begin(noCarrier), code));
}

const noCarrier = (): undefined => undefined;
