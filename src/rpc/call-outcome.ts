/** How calls ended, as gRPC status names, for metrics. */
import { Code } from '@connectrpc/connect';
import { DomainError } from '../domain/errors.ts';
import type { RunningCall } from '../telemetry/call-metrics.ts';
import { toConnectError } from './errors.ts';

/** Connect writes `InvalidArgument` for `INVALID_ARGUMENT`, and spells one code differently. */
const names = new Map(
  Object.values(Code)
    .filter((code) => typeof code === 'number')
    .map((code) => [code, (Code[code] as string).replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase()]),
);
names.set(Code.Canceled, 'CANCELLED');

/** The codes that count as failures of the server. */
const failures: ReadonlySet<Code> = new Set([
  Code.Unknown,
  Code.DeadlineExceeded,
  Code.Unimplemented,
  Code.Internal,
  Code.Unavailable,
  Code.DataLoss,
]);

/** Code 0 is OK. gRPC and Connect use the same numbers for the other codes. */
export function endCall(running: RunningCall, code: number): void {
  running.end(code === 0 ? 'OK' : (names.get(code) ?? 'UNKNOWN'), failures.has(code));
}

/** Ends the measurement of a call whose caller has disconnected or whose deadline has passed. */
export function endGone(running: RunningCall, { reason }: AbortSignal): void {
  endCall(running, reason instanceof DomainError ? toConnectError(reason).code : Code.Canceled);
}
