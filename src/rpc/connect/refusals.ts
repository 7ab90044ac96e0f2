/**
 * Counts the calls that Connect refuses itself: unknown compression, a malformed deadline, or an unknown
 * content type. Connect reports the reason in the last chunk of its answer, in the form of the protocol.
 */
import { Code } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { codeFromString } from '@connectrpc/connect/protocol-connect';

/** Passes the body on, then calls `tell` with its last chunk, which shows how the call ended. */
export async function* tellingLast(
  body: UniversalServerResponse['body'],
  tell: (last: Uint8Array) => void,
): AsyncGenerator<Uint8Array> {
  let last: Uint8Array = new Uint8Array();
  try {
    for await (const chunk of body ?? []) {
      last = chunk;
      yield chunk;
    }
  } finally {
    tell(last);
  }
}

/**
 * The code of a refusal. An answer without a code is about the content type or the HTTP method, for which no
 * code exists.
 */
export function refusalIn(chunk: Uint8Array): Code {
  const text = Buffer.from(chunk).toString('latin1');
  const [, number] = /grpc-status: ?(\d+)/.exec(text) ?? [];
  if (number !== undefined) return Number(number);
  const [, name] = /"code":"(\w+)"/.exec(text) ?? [];
  return codeFromString(name ?? '') ?? Code.Unknown;
}
