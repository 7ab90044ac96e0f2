import type { ServerUnaryCall, ServerWritableStream } from '@grpc/grpc-js';
import type { Caller } from '../../engine/context/engine-context.ts';
import type { RunningCall } from '../../telemetry/call-metrics.ts';
import { principalOf } from './admission.ts';
import type { ConnectionConduct } from './conduct.ts';
import { innerCallOf, sessionOf } from './connection-age.ts';
import { goneBecause } from './status.ts';

export interface GrpcCaller extends Caller {
  signal: AbortSignal;
  /** Ends the call with an error. */
  abort(reason: Error): void;
  /** The error with which the server ends the call. */
  endsBecause: Error | undefined;
  answered: boolean;
}

/**
 * A call is cancelled by its client, by its connection, or by grpc-js when the deadline has passed. grpc-js
 * reports a cancellation for every call in the end, answered or not; by then nothing listens to the signal.
 */
export function callerOf(
  call: ServerUnaryCall<unknown, unknown> | ServerWritableStream<unknown, unknown>,
  method: string,
  { traceId }: RunningCall,
  conduct: ConnectionConduct,
): GrpcCaller {
  const beganAt = performance.now();
  const session = sessionOf(innerCallOf(call));
  const controller = new AbortController();
  const caller: GrpcCaller = {
    peer: call.getPeer(),
    principal: principalOf(call.metadata),
    method,
    traceId,
    signal: controller.signal,
    abort: (reason) => {
      caller.endsBecause ??= reason;
      controller.abort(reason);
    },
    endsBecause: undefined,
    answered: false,
  };
  call.on('cancelled', () => {
    if (caller.answered) return;
    const reason = goneBecause(call.getDeadline());
    if (reason.code === 'canceled') conduct.abandoned(session, beganAt);
    controller.abort(reason);
  });
  return caller;
}

/** Waits for a slow client, so that a stream never accumulates messages in memory. */
export function drained(
  call: ServerWritableStream<unknown, unknown>,
  signal: AbortSignal | undefined,
): Promise<void> {
  return new Promise((resolve) => {
    const goOn = () => {
      call.off('drain', goOn);
      signal?.removeEventListener('abort', goOn);
      resolve();
    };
    call.once('drain', goOn);
    signal?.addEventListener('abort', goOn, { once: true });
  });
}
