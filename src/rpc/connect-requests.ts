/**
 * Reads the request message of an RPC over HTTP before Connect does, and refuses what cannot be read in our own words.
 *
 * Left alone, Connect answers a message it cannot decode as an internal error, or without the details that our errors
 * carry; and it takes an enum word that does not exist for one that was left out. Compressed messages are left to it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type DescMessage, fromBinary, fromJson, type JsonValue } from '@bufbuild/protobuf';
import type { ConnectError } from '@connectrpc/connect';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import { type DomainError, invalid } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import { readBytes } from '../rest/body.ts';
import { checkEnumWords } from './enum-words.ts';
import { statusBytes, toConnectError, unreadable } from './errors.ts';

/** How a request is framed: bare, as one message in an envelope, or not known to us. */
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
  if (method !== 'POST' || !Object.hasOwn(wires, type)) return undefined;
  return (headers['content-encoding'] ?? 'identity') === 'identity' ? wires[type] : undefined;
}

/** The body as Connect may have it, once it has been seen that its message can be read. */
export async function readChecked(input: DescMessage, wire: Wire, request: IncomingMessage): Promise<Buffer> {
  // An envelope adds five bytes to the largest message.
  const body = await readBytes(request, limits.frameBytes + 5);
  const message = wire.enveloped ? messageIn(body) : body;
  if (message) {
    if (wire.json) checkJsonMessage(input, message);
    else checkBinaryMessage(input, message);
  }
  return body;
}

/** The message of an envelope, or nothing where it is compressed or not whole, which Connect knows how to answer. */
function messageIn(body: Buffer): Buffer | undefined {
  if (body.length < 5 || body[0] !== 0) return undefined;
  const end = 5 + body.readUInt32BE(1);
  return body.length >= end ? body.subarray(5, end) : undefined;
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
  checkEnumWords(input, json, '');
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

/** The decoder does not always say which field it could not read, so each is tried by itself. */
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

/** Tells a caller in the words of its protocol why its request was refused. */
export function refuse(
  response: ServerResponse,
  wire: Wire,
  contentType: string,
  problem: DomainError,
): void {
  const error = toConnectError(problem);
  const json = errorToJson(error, undefined);
  // What is left of a body that was too large is not read, so the connection cannot be used again.
  const connection = 'close';
  if (wire.web) {
    response.writeHead(200, { 'content-type': contentType, ...webStatus(error), connection }).end();
  } else if (wire.enveloped) {
    const end = Buffer.from(JSON.stringify({ error: json }));
    const head = Buffer.alloc(5);
    head[0] = endOfStream;
    head.writeUInt32BE(end.length, 1);
    response.writeHead(200, { 'content-type': contentType, connection }).end(Buffer.concat([head, end]));
  } else {
    const headers = { 'content-type': 'application/json', connection };
    response.writeHead(codeToHttpStatus(error.code), headers).end(JSON.stringify(json));
  }
}

const endOfStream = 0b10;

/** gRPC-Web takes a status in the headers of an answer that has no messages. */
const webStatus = (error: ConnectError): Record<string, string> => ({
  'grpc-status': String(error.code),
  'grpc-message': encodeURIComponent(error.rawMessage),
  'grpc-status-details-bin': statusBytes(error).toString('base64'),
});
