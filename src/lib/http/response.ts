/**
 * Writes responses. Large ones are compressed for clients that accept gzip; early ones are sent so that the
 * client can read them.
 *
 * A refusal may be ready while the client is still sending its body. If the server closed the connection
 * then, the client's kernel would see a reset and might drop the response. So the server writes the response,
 * keeps the connection open for a bounded time and number of bytes, discards the body meanwhile, and then
 * closes the connection.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, gzip } from 'node:zlib';
import { isTrickle } from './receive-budget.ts';

/** Responses from this size on are compressed. Those of single calls are smaller and stay fast. */
export const compressFromBytes = 16 * 1024;

/** Twice the largest body that any route accepts. */
const drainBytesMax = 32 * 1024 * 1024;
const drainIdleMs = 500;
/** How long a client may take to read one response. */
const unreadMs = 60_000;
const drainMs = 5_000;

export function send(request: IncomingMessage, response: ServerResponse, answer: RestResponse): void {
  const { status, body, headers } = answer;
  if (response.destroyed || response.headersSent) return;
  if (body === undefined) {
    response.writeHead(status, { ...headers, ...onUnread(request) });
    endAnswer(request, response);
    return;
  }
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const isLarge = text.length >= compressFromBytes;
  const whole = {
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    ...headers,
  };
  if (isLarge) response.appendHeader('vary', 'accept-encoding');
  if (!isLarge || !acceptsGzip(request.headers['accept-encoding'])) {
    sendBytes(request, response, { status, headers: whole, text });
    return;
  }
  // The fastest level: compression runs beside the event loop, but on the same cores as all other calls.
  gzip(text, { level: constants.Z_BEST_SPEED }, (error, bytes) => {
    if (response.destroyed) return;
    const packed = { ...whole, 'content-encoding': 'gzip' };
    sendBytes(
      request,
      response,
      error ? { status, headers: whole, text } : { status, headers: packed, text: bytes },
    );
  });
}

interface Answer {
  status: number;
  headers: ResponseHeaders;
  text: string | Buffer;
}

function sendBytes(
  request: IncomingMessage,
  response: ServerResponse,
  { status, headers, text }: Answer,
): void {
  response.writeHead(status, {
    ...headers,
    'content-length': Buffer.byteLength(text),
    ...onUnread(request),
  });
  endAnswer(request, response, request.method === 'HEAD' ? undefined : text);
}

/**
 * Node marks a request without a body as complete only after its parser has continued, which is after a
 * refusal.
 */
const isComplete = ({ complete, headers }: IncomingMessage): boolean =>
  complete || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined);

/** The rest of a body is not read, so the connection cannot be used again. */
export const onUnread = (request: IncomingMessage): Record<string, string> =>
  isComplete(request) ? {} : { connection: 'close' };

/**
 * Ends a response whose head is written. The head must contain the length, so that the client need not wait
 * for the end.
 */
export function endAnswer(request: IncomingMessage, response: ServerResponse, body?: string | Buffer): void {
  if (isComplete(request)) {
    response.end(body);
    if (request.socket.writableLength > 0) endIfUnread(request, response);
    return;
  }
  if (body === undefined) response.flushHeaders();
  else response.write(body);
  endOnceDrained(request, response);
}

/**
 * Ends the connection of a client that does not read its response; the server would otherwise keep it for
 * ever.
 */
function endIfUnread(request: IncomingMessage, response: ServerResponse): void {
  const timer = setTimeout(() => request.socket.destroy(), unreadMs);
  timer.unref();
  response.once('close', () => clearTimeout(timer));
}

function endOnceDrained(request: IncomingMessage, response: ServerResponse): void {
  let bytes = 0;
  let pieces = 0;
  const end = () => {
    clearTimeout(idle);
    clearTimeout(whole);
    request.off('data', count);
    if (!response.writableEnded && !response.destroyed) response.end();
  };
  const idle = setTimeout(end, drainIdleMs);
  const whole = setTimeout(end, drainMs);
  const count = (chunk: Buffer) => {
    bytes += chunk.length;
    pieces += 1;
    idle.refresh();
    if (bytes > drainBytesMax) end();
    // Each piece costs the event loop as much as a small request.
    if (isTrickle(pieces, bytes)) request.socket.destroy();
  };
  request.on('data', count);
  request.once('end', end);
  response.once('close', end);
  request.resume();
}

/** Whether a client accepts gzip, by its header `Accept-Encoding`. */
export function acceptsGzip(header: string | string[] = ''): boolean {
  let anyCoding = false;
  for (const part of String(header).toLowerCase().split(',')) {
    const [coding, ...parameters] = part.split(';').map((piece) => piece.trim());
    const isTaken = !parameters.some((parameter) => /^q\s*=\s*0(\.0{0,3})?$/.test(parameter));
    if (coding === 'gzip' || coding === 'x-gzip') return isTaken;
    if (coding === '*') anyCoding = isTaken;
  }
  return anyCoding;
}

export interface RestResponse {
  status: number;
  /** Sent as JSON, or unchanged if it is text; no body if absent. */
  body?: unknown;
  headers?: ResponseHeaders;
}

/** A list is sent as several headers. */
type ResponseHeaders = Record<string, string | string[]>;
