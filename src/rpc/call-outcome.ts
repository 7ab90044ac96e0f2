/** How calls ended, in the words of gRPC, for those who count them. */
import { Code } from '@connectrpc/connect';
import { DomainError } from '../domain/errors.ts';
import type { RunningCall } from '../telemetry/call-metrics.ts';
import { toConnectError } from './errors.ts';

/** `InvalidArgument` is `INVALID_ARGUMENT` to everybody but Connect, and one is spelt in another way. */
const names = new Map(
  Object.values(Code)
    .filter((code) => typeof code === 'number')
    .map((code) => [code, (Code[code] as string).replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()]),
);
names.set(Code.Canceled, 'CANCELLED');

/** Of these it is the server that could not. */
const failures: ReadonlySet<Code> = new Set([
  Code.Unknown,
  Code.DeadlineExceeded,
  Code.Unimplemented,
  Code.Internal,
  Code.Unavailable,
  Code.DataLoss,
]);

/** 0 is well; the other codes are numbered alike in gRPC and Connect. */
export function endCall(running: RunningCall, code: number): void {
  running.end(code === 0 ? 'OK' : (names.get(code) ?? 'UNKNOWN'), failures.has(code));
}

/** Nobody is left to be told. */
export function endGone(running: RunningCall, { reason }: AbortSignal): void {
  endCall(running, reason instanceof DomainError ? toConnectError(reason).code : Code.Canceled);
}
