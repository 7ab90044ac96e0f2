import { create, toBinary } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ErrorInfoSchema,
  QuotaFailureSchema,
  RetryInfoSchema,
} from '../../gen/google/rpc/error_details_pb.js';
import { StatusSchema } from '../../gen/google/rpc/status_pb.js';
import { DomainError, type ErrorCode, type QuotaUse } from '../domain/errors.ts';
import { toDomainError } from '../engine/context/to-domain-error.ts';
import { inOneLine, type Log } from '../lib/log.ts';

/** The only map from the domain's error codes to those of gRPC and Connect. */
const codes: Record<ErrorCode, Code> = {
  invalid_request: Code.InvalidArgument,
  job_not_found: Code.NotFound,
  lease_not_found: Code.NotFound,
  owner_not_found: Code.NotFound,
  contention_not_found: Code.NotFound,
  not_found: Code.NotFound,
  worker_mismatch: Code.PermissionDenied,
  token_mismatch: Code.PermissionDenied,
  host_not_allowed: Code.PermissionDenied,
  origin_not_allowed: Code.PermissionDenied,
  unauthenticated: Code.Unauthenticated,
  permission_denied: Code.PermissionDenied,
  rate_limited: Code.ResourceExhausted,
  quota_exceeded: Code.ResourceExhausted,
  job_mismatch: Code.FailedPrecondition,
  message_mismatch: Code.FailedPrecondition,
  job_not_claimed: Code.FailedPrecondition,
  illegal_transition: Code.FailedPrecondition,
  lease_not_active: Code.FailedPrecondition,
  owner_not_alive: Code.FailedPrecondition,
  duplicate_request: Code.AlreadyExists,
  payload_too_large: Code.ResourceExhausted,
  overloaded: Code.ResourceExhausted,
  unavailable: Code.Unavailable,
  deadline_exceeded: Code.DeadlineExceeded,
  canceled: Code.Canceled,
  method_not_allowed: Code.Unimplemented,
  unsupported_media_type: Code.InvalidArgument,
};

export interface ErrorContext {
  log: Log;
  method: string;
  signal?: AbortSignal | undefined;
}

/**
 * Any error as its caller may see it. An unexpected error is logged and returned as `internal` without
 * details.
 */
export function toConnectError(error: DomainError): ConnectError;
export function toConnectError(error: unknown, context: ErrorContext): ConnectError;
export function toConnectError(error: unknown, context?: ErrorContext): ConnectError {
  if (error instanceof ConnectError) return error;
  const known = toDomainError(error, context?.signal);
  if (!known) {
    context?.log.error('a call failed', { method: context.method, error });
    return new ConnectError('internal: something went wrong on the server', Code.Internal);
  }
  if (known.code === 'unavailable')
    context?.log.warn('a call could not be served', { method: context.method, reason: inOneLine(known) });
  return new ConnectError(
    known.message.toWellFormed(),
    codes[known.code],
    undefined,
    detailsOf(known),
    known,
  );
}

/** `ErrorInfo` comes first: every error has it. */
function detailsOf(error: DomainError) {
  const { retryAfterMs, quota, detail } = error;
  const retry = retryAfterMs === undefined ? [] : [retryDetail(retryAfterMs)];
  const failure = quota === undefined ? [] : [quotaDetail(quota, detail)];
  return [infoOf(error), ...retry, ...failure];
}

const retryDetail = (ms: number) => ({
  desc: RetryInfoSchema,
  value: create(RetryInfoSchema, {
    retryDelay: { seconds: BigInt(Math.floor(ms / 1_000)), nanos: Math.round((ms % 1_000) * 1e6) },
  }),
});

const quotaDetail = ({ subject }: QuotaUse, description: string) => ({
  desc: QuotaFailureSchema,
  value: create(QuotaFailureSchema, { violations: [{ subject, description }] }),
});

const infoOf = ({ code, field, jobId }: DomainError) => ({
  desc: ErrorInfoSchema,
  value: create(ErrorInfoSchema, {
    reason: code,
    domain: 'leasehold',
    metadata: {
      ...(field === undefined ? {} : { field }),
      ...(jobId === undefined ? {} : { job_id: jobId }),
    },
  }),
});

/** The error as the `google.rpc.Status` in `grpc-status-details-bin`, for gRPC and gRPC-Web. */
export function statusBytes(error: ConnectError): Buffer {
  const details = error.details.flatMap((detail) =>
    'desc' in detail ? [anyPack(detail.desc, create(detail.desc, detail.value))] : [],
  );
  const status = create(StatusSchema, { code: error.code, message: error.rawMessage, details });
  return Buffer.from(toBinary(StatusSchema, status));
}

/** The error for a message that could not be read at all. */
export function unreadable(error: unknown): DomainError {
  const words = error instanceof Error ? error.message : String(error);
  return new DomainError('invalid_request', words, { field: fieldIn(words) ?? 'body', cause: error });
}

/**
 * The field in the decoder's error, such as `cannot decode field leasehold.v1.SubmitJobRequest.cost_units
 * from …`.
 */
export const fieldIn = (words: string): string | undefined =>
  /field [\w.]+\.(\w+) from/.exec(words)?.[1] ?? /key "?(\w+)"? is unknown/.exec(words)?.[1];
