/**
 * Reads the request message of an RPC over HTTP before Connect does, and refuses unreadable messages with the
 * server's own errors.
 *
 * Without this, Connect answers a message it cannot decode as an internal error, or without the details that
 * this server's errors carry. It also treats an unknown enum name like an absent one. A gzip message is
 * decompressed here, so that it is checked like any other. Other encodings are left to Connect, whose answer
 * names the supported ones.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type DescMessage, fromBinary, fromJson, type JsonValue } from '@bufbuild/protobuf';
import type { ConnectError } from '@connectrpc/connect';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import { type DomainError, invalid } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { ReceiveBudget } from '../../lib/http/receive-budget.ts';
import { readBytes, tooLarge, unpackGzip } from '../../lib/http/request-body.ts';
import { endAnswer, onUnread } from '../../lib/http/response.ts';
import { statusBytes, toConnectError, unreadable } from '../errors.ts';
import { checkEnums } from '../wire/enums.ts';

/** How a request is framed: bare, or as one message in an envelope. */
interface Wire {
  enveloped: boolean;
  json: boolean;
  web: boolean;
}

export const bareJson: Wire = { enveloped: false, json: true, web: false };

const wires: Record<string, Wire> = {
  'application/json': bareJson,
  'application/proto': { enveloped: false, json: false, web: false },
  'application/connect+json': { enveloped: true, json: true, web: false },
  'application/connect+proto': { enveloped: true, json: false, web: false },
  'application/grpc-web': { enveloped: true, json: false, web: true },
  'application/grpc-web+proto': { enveloped: true, json: false, web: true },
  'application/grpc-web+json': { enveloped: true, json: true, web: true },
};

export function wireOf({ method, headers }: IncomingMessage): Wire | undefined {
  const type = (headers['content-type'] ?? '').toLowerCase().split(';', 1)[0]?.trim() ?? '';
  return method === 'POST' && Object.hasOwn(wires, type) ? wires[type] : undefined;
}

/** The header that names the compression of messages. */
const encodingHeader = ({ enveloped, web }: Wire): string =>
  web ? 'grpc-encoding' : enveloped ? 'connect-content-encoding' : 'content-encoding';

/** The encoding of the messages: none, gzip, or undefined for one that is unknown here. */
export function encodingOf(wire: Wire, { headers }: IncomingMessage): 'identity' | 'gzip' | undefined {
  const encoding = headers[encodingHeader(wire)] ?? 'identity';
  return encoding === 'identity' || encoding === 'gzip' ? encoding : undefined;
}

/** The headers of a request without those that describe its compression. */
export function withoutEncoding(wire: Wire, headers: Headers): Headers {
  const plain = new Headers(headers);
  plain.delete(encodingHeader(wire));
  plain.delete('content-length');
  return plain;
}

/** Returns the body for Connect, decompressed, after checking that its message can be read. */
export async function readChecked(
  input: DescMessage,
  wire: Wire,
  request: IncomingMessage,
  budget: ReceiveBudget,
): Promise<Buffer> {
  // An envelope adds five bytes to the largest message.
  const sent = await readBytes(request, limits.frameBytes + envelopeBytes, budget);
  const { message: packed, isPacked } = wire.enveloped
    ? messageIn(sent)
    : { message: sent, isPacked: sent.length > 0 };
  const inGzip = encodingOf(wire, request) === 'gzip';
  if (wire.enveloped && isPacked && !inGzip)
    throw invalid('body', 'its message is compressed, and no header says how');
  const message = isPacked && inGzip ? await unpackGzip(packed, limits.frameBytes) : packed;
  if (wire.json) checkJsonMessage(input, message);
  else checkBinaryMessage(input, message);
  return wire.enveloped ? envelope(0, message) : message;
}

const envelopeBytes = 5;
const compressedFlag = 0b1;

/**
 * The single message that an RPC over HTTP takes. Connect would answer some malformed envelopes as an
 * internal error.
 */
function messageIn(body: Buffer): { message: Buffer; isPacked: boolean } {
  if (body.length < envelopeBytes) throw invalid('body', 'must be one message in an envelope');
  const flags = body[0];
  const length = body.readUInt32BE(1);
  if (length > limits.frameBytes) throw tooLarge(limits.frameBytes);
  if (body.length !== envelopeBytes + length) {
    const words = `must be one message in an envelope: it says ${length} bytes, and ${body.length - envelopeBytes} follow`;
    throw invalid('body', words);
  }
  if (flags !== 0 && flags !== compressedFlag)
    throw invalid('body', `its envelope has unknown flags: ${flags}`);
  return { message: body.subarray(envelopeBytes), isPacked: flags === compressedFlag && length > 0 };
}

function envelope(flags: number, message: Buffer): Buffer {
  const head = Buffer.alloc(envelopeBytes);
  head[0] = flags;
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

function checkBinaryMessage(input: DescMessage, bytes: Buffer): void {
  try {
    fromBinary(input, bytes);
  } catch (error) {
    throw unreadable(error);
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true });
const readOptions = { ignoreUnknownFields: true };

function checkJsonMessage(input: DescMessage, bytes: Buffer): void {
  const json = parseJson(bytes);
  checkEnums(input, json, '');
  try {
    fromJson(input, json, readOptions);
  } catch (error) {
    throw blame(input, json) ?? unreadable(error);
  }
}

function parseJson(bytes: Buffer): JsonValue {
  try {
    return JSON.parse(utf8.decode(bytes)) as JsonValue;
  } catch (error) {
    throw unreadable(new Error(error instanceof SyntaxError ? 'body: is not JSON' : 'body: is not UTF-8'));
  }
}

/** The decoder does not always name the field that it could not read, so each field is decoded alone. */
function blame(input: DescMessage, json: JsonValue): DomainError | undefined {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return undefined;
  for (const [key, value] of Object.entries(json)) {
    try {
      fromJson(input, { [key]: value }, readOptions);
    } catch (error) {
      const field = input.fields.find(({ jsonName, name }) => key === jsonName || key === name);
      if (field) return invalid(field.name, error instanceof Error ? error.message : 'cannot be read');
    }
  }
  return undefined;
}

/** Sends a refusal to the caller in the form of its protocol. */
export function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  wire: Wire,
  problem: DomainError,
): void {
  const error = toConnectError(problem);
  const json = JSON.stringify(errorToJson(error, undefined));
  const type = request.headers['content-type'] ?? '';
  const answer = (status: number, headers: Record<string, string>, body: Buffer) => {
    const length = { 'content-length': body.length };
    response.writeHead(status, { ...headers, ...length, ...onUnread(request) });
    endAnswer(request, response, body);
  };
  if (wire.web) answer(200, { 'content-type': type, ...webStatus(error) }, Buffer.alloc(0));
  else if (wire.enveloped) {
    const end = Buffer.from(`{"error":${json}}`);
    answer(200, { 'content-type': type }, envelope(endOfStream, end));
  } else answer(codeToHttpStatus(error.code), { 'content-type': 'application/json' }, Buffer.from(json));
}

const endOfStream = 0b10;

/** gRPC-Web accepts a status in the headers of an answer that has no messages. */
const webStatus = (error: ConnectError): Record<string, string> => ({
  'grpc-status': String(error.code),
  'grpc-message': encodeURIComponent(error.rawMessage),
  'grpc-status-details-bin': statusBytes(error).toString('base64'),
});
