import { Code } from '@connectrpc/connect';
import { DomainError, type ErrorCode, errorCodes } from '../../src/domain/errors.ts';
import { statuses } from '../../src/rest/http/errors.ts';
import { errorDocs } from '../../src/rest/openapi/error-docs.ts';
import { toConnectError } from '../../src/rpc/errors.ts';
import { code, table } from './markdown.ts';

/** `InvalidArgument` becomes `INVALID_ARGUMENT`. */
const statusName = (status: Code): string =>
  (Code[status] ?? '').replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();

const grpcStatus = (name: ErrorCode | 'internal'): string =>
  statusName(name === 'internal' ? Code.Internal : toConnectError(new DomainError(name, '')).code);

/** Every error code with its statuses, from the maps that the server uses. */
export const errorsSection = (): string =>
  table(
    ['Code', 'HTTP', 'gRPC and Connect', 'Meaning', 'Example of `detail`'],
    [...errorCodes, 'internal' as const].map((name) => {
      const { means, example } = errorDocs[name];
      return [code(name), String(statuses[name]), code(grpcStatus(name)), means, example.detail];
    }),
  );
