import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { DomainError, printable } from '../../domain/errors.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { decompressInTurn } from './decompression.ts';
import type { ReceiveBudget } from './receive-budget.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Reads a JSON object from a request, or throws what is wrong with it. A request without a body is an empty
 * object.
 */
export async function readBody(
  request: IncomingMessage,
  bytesMax: number,
  budget: ReceiveBudget,
): Promise<JsonObject> {
  const { headers } = request;
  // A chunked body may turn out to be empty, and then needs no type.
  if (Number(headers['content-length']) > 0) checkType(request);
  const sent = await readBytes(request, bytesMax, budget);
  if (sent.length === 0) return {};
  checkType(request);
  const bytes = headers['content-encoding'] === 'gzip' ? await unpackGzip(sent, bytesMax) : sent;
  const body = parse(bytes);
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new DomainError('invalid_request', 'body: must be a JSON object', { field: 'body' });
  }
  return body as JsonObject;
}

/** The error for a body that is too large, as received or after decompression. */
export const tooLarge = (bytesMax: number) =>
  new DomainError('payload_too_large', `body: must not be larger than ${bytesMax} bytes`, { field: 'body' });

/** Reads the whole body, or refuses it as soon as it is too large. */
export function readBytes(
  request: IncomingMessage,
  bytesMax: number,
  budget: ReceiveBudget,
): Promise<Buffer> {
  if (Number(request.headers['content-length']) > bytesMax) return Promise.reject(tooLarge(bytesMax));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const refuse = (error: unknown) => {
      // The rest of the body is discarded on arrival.
      request.off('data', take);
      chunks.length = 0;
      receiving.close();
      reject(error);
    };
    const receiving = budget.open(refuse);
    const take = (chunk: Buffer) => {
      length += chunk.length;
      try {
        if (length > bytesMax) throw tooLarge(bytesMax);
        receiving.add(chunk.length);
        chunks.push(chunk);
      } catch (error) {
        refuse(error);
      }
    };
    request.on('data', take);
    request.on('end', () => {
      receiving.close();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks));
    });
    request.on('error', (cause) => refuse(new DomainError('canceled', 'the caller has gone', { cause })));
    request.on('close', () => receiving.close());
  });
}

const gunzipBytes = promisify(gunzip);

/** Decompresses a client's bytes. Memory never holds more than `bytesMax` of the result. */
export async function unpackGzip(bytes: Buffer, bytesMax: number): Promise<Buffer> {
  try {
    return await decompressInTurn(() => gunzipBytes(bytes, { maxOutputLength: bytesMax }));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge(bytesMax);
    if (code !== 'Z_DATA_ERROR' && code !== 'Z_BUF_ERROR') throw cause;
    throw new DomainError('invalid_request', 'body: is not gzip that can be read', { field: 'body', cause });
  }
}

function checkType({ headers }: IncomingMessage): void {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity' && encoding !== 'gzip') {
    const words = `content-encoding: ${printable(encoding)} is not supported; gzip is`;
    throw new DomainError('unsupported_media_type', words);
  }
  const [type = '', ...parameters] = (headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith('charset='));
  if (
    type.trim() !== 'application/json' ||
    (charset ?? 'charset=utf-8').replaceAll('"', '') !== 'charset=utf-8'
  ) {
    throw new DomainError('unsupported_media_type', 'content-type: must be application/json, in UTF-8');
  }
}

function parse(bytes: Buffer): unknown {
  try {
    const text = utf8.decode(bytes);
    return manyDigits.test(text)
      ? JSON.parse(text, exactly as (key: string, value: unknown) => unknown)
      : JSON.parse(text);
  } catch (error) {
    const words = whatIsWrong(error);
    throw new DomainError('invalid_request', `body: ${words}`, { field: 'body', cause: error });
  }
}

/** The number of digits from which a double may be inexact. */
const manyDigits = /\d{16}/;

function whatIsWrong(error: unknown): string {
  if (error instanceof SyntaxError) return 'is not JSON';
  // The parser has no limit of depth, but the check of numbers has.
  return error instanceof RangeError ? 'is nested too deeply' : 'is not UTF-8';
}

/**
 * Turns whole numbers that the parser cannot represent into NaN, so that they are refused with their
 * position. A double written with the shortest digits that identify it is unchanged by parsing, and passes.
 */
function exactly(_key: string, value: unknown, { source }: { source?: string }): unknown {
  if (typeof value !== 'number' || value === 0 || source === undefined || !/^-?\d+$/.test(source))
    return value;
  if (String(value) === source) return value;
  return Number.isFinite(value) && BigInt(value) === BigInt(source) ? value : Number.NaN;
}
