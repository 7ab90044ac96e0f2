import type { IncomingMessage } from 'node:http';
import { DomainError } from '../domain/errors.ts';
import type { JsonObject } from '../domain/job.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Reads a JSON object from a request, or says what is wrong with it. No body at all is an empty object. */
export async function readBody(request: IncomingMessage, bytesMax: number): Promise<JsonObject> {
  const bytes = await readBytes(request, bytesMax);
  if (bytes.length === 0) return {};
  checkType(request);
  const body = parse(bytes);
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new DomainError('invalid_request', 'body: must be a JSON object', { field: 'body' });
  }
  return body as JsonObject;
}

/** Reads the whole body, or refuses it as soon as it is too large. */
export function readBytes(request: IncomingMessage, bytesMax: number): Promise<Buffer> {
  const tooLarge = () =>
    new DomainError('payload_too_large', `body: must not be larger than ${bytesMax} bytes`, {
      field: 'body',
    });
  if (Number(request.headers['content-length']) > bytesMax) return Promise.reject(tooLarge());
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    request.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length <= bytesMax) chunks.push(chunk);
      else reject(tooLarge());
    });
    request.on('end', () => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
    request.on('error', (cause) => reject(new DomainError('canceled', 'the caller has gone', { cause })));
  });
}

function checkType({ headers }: IncomingMessage): void {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') {
    throw new DomainError('unsupported_media_type', `content-encoding: ${encoding} is not supported`);
  }
  const [type = '', ...parameters] = (headers['content-type'] ?? 'application/json').toLowerCase().split(';');
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

/** As many digits as a number needs to be beyond what a double holds exactly. */
const manyDigits = /\d{16}/;

function whatIsWrong(error: unknown): string {
  if (error instanceof SyntaxError) return 'is not JSON';
  // The parser itself knows no depth, but what looks at numbers does.
  return error instanceof RangeError ? 'is nested too deeply' : 'is not UTF-8';
}

/**
 * Takes whole numbers that the parser turns into others for no number at all, so that they are refused with their
 * place. A double that somebody wrote with the digits that are enough to tell it from its neighbours comes back with
 * the same digits, and passes.
 */
function exactly(_key: string, value: unknown, { source }: { source?: string }): unknown {
  if (typeof value !== 'number' || value === 0 || source === undefined || !/^-?\d+$/.test(source))
    return value;
  if (String(value) === source) return value;
  return Number.isFinite(value) && BigInt(value) === BigInt(source) ? value : Number.NaN;
}
