/**
 * What Connect refuses by itself: what is compressed, what has a deadline nobody can read, or what is of no type it
 * knows. It says why in the last chunk of its answer, in the words of the protocol, and somebody has to count it.
 */
import { Code } from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { codeFromString } from '@connectrpc/connect/protocol-connect';

/** The same body, and its last chunk for whoever wants to know how it ended. */
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

/** Why a request was refused. An answer without words is about its type or its HTTP method, and no code is for that. */
export function refusalIn(chunk: Uint8Array): Code {
  const text = Buffer.from(chunk).toString('latin1');
  const [, number] = /grpc-status: ?(\d+)/.exec(text) ?? [];
  if (number !== undefined) return Number(number);
  const [, name] = /"code":"(\w+)"/.exec(text) ?? [];
  return codeFromString(name ?? '') ?? Code.Unknown;
}
