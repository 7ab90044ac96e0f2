/**
 * The part of PostgreSQL's frontend/backend protocol that is needed to share one backend: where a message
 * ends, its type, and whether the backend is inside a transaction. A message is a type byte, a length of four
 * bytes that counts itself, and a body. Only the first message of a connection has no type byte.
 */

const HEADER_BYTES = 5;
const QUERY = 0x51;
const SYNC = 0x53;
const TERMINATE = 0x58;
const NOTIFICATION = 0x41;
const READY_FOR_QUERY = 0x5a;
const READY_BYTES = 6;

export const SYNC_MESSAGE = Uint8Array.of(SYNC, 0, 0, 0, 4);

/** A statement without parameters. */
export function queryMessage(sql: string): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(sql);
  const message = new Uint8Array(HEADER_BYTES + text.length + 1);
  message[0] = QUERY;
  new DataView(message.buffer).setInt32(1, text.length + 5);
  message.set(text, HEADER_BYTES);
  return message;
}

/** The startup message of the `pg` driver. Its answer is the greeting that every connection receives. */
export function startupMessage(parameters: Record<string, string>): Uint8Array<ArrayBuffer> {
  const pairs = Object.entries(parameters).map(([key, value]) => `${key}\0${value}\0`);
  const body = new TextEncoder().encode(`${pairs.join('')}\0`);
  const message = new Uint8Array(8 + body.length);
  const view = new DataView(message.buffer);
  view.setInt32(0, message.length);
  view.setInt32(4, 3 << 16);
  message.set(body, 8);
  return message;
}

/** Calls `visit` with the type and the bounds of every complete message; returns the start of the rest. */
export function eachMessage(
  bytes: Uint8Array<ArrayBuffer>,
  visit: (type: number, start: number, end: number) => void,
): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let start = 0;
  while (start + HEADER_BYTES <= bytes.length) {
    const end = start + 1 + view.getInt32(start + 1);
    if (end > bytes.length || end < start + HEADER_BYTES) break;
    visit(view.getUint8(start), start, end);
    start = end;
  }
  return start;
}

/** Length of the untyped first message of a connection, or undefined until four bytes have arrived. */
export function startupLength(bytes: Uint8Array<ArrayBuffer>): number | undefined {
  if (bytes.length < 4) return undefined;
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getInt32(0);
}

/** Whether the backend answers a message of this type with 'ready for query'. */
export function asksForReady(type: number): boolean {
  return type === QUERY || type === SYNC;
}

/** A client's Terminate message, which is always sent alone. */
export function isTerminate(bytes: Uint8Array): boolean {
  return bytes.length === HEADER_BYTES && bytes[0] === TERMINATE;
}

export type BackendState = 'idle' | 'in transaction' | 'busy';

/** State of the backend after an answer. It is busy if the answer does not end with 'ready for query'. */
export function stateAfter(answer: Uint8Array<ArrayBuffer>): BackendState {
  const at = answer.length - READY_BYTES;
  if (at < 0 || answer[at] !== READY_FOR_QUERY || answer[at + 4] !== READY_BYTES - 1) return 'busy';
  return String.fromCharCode(answer[at + 5] ?? 0) === 'I' ? 'idle' : 'in transaction';
}

/**
 * The answer as a PostgreSQL server would give it. After an error the embedded one reports that it is ready,
 * and again for the Sync that follows. A client that has sent more meanwhile would take the second report for
 * the answer to its next message.
 */
export function readyOnce(answer: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  let previous = 0;
  const surplus: number[] = [];
  eachMessage(answer, (type, start) => {
    if (type === READY_FOR_QUERY && previous === READY_FOR_QUERY) surplus.push(start);
    previous = type;
  });
  if (surplus.length === 0) return answer;
  const left = new Uint8Array(answer.length - surplus.length * READY_BYTES);
  let from = 0;
  let at = 0;
  for (const start of [...surplus, answer.length]) {
    left.set(answer.subarray(from, start), at);
    at += start - from;
    from = start + READY_BYTES;
  }
  return left;
}

/** The notifications in an answer, each as a separate message. */
export function notificationsIn(answer: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>[] {
  const found: Uint8Array<ArrayBuffer>[] = [];
  eachMessage(answer, (type, start, end) => {
    if (type === NOTIFICATION) found.push(answer.slice(start, end));
  });
  return found;
}
