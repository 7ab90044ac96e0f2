/**
 * A gRPC client that can do unary calls and nothing else, in a tenth of the processor time of a full one. Load and
 * server share two cores, so what the client saves is what the server may be seen to do.
 *
 * It speaks HTTP/2 over a plain socket. Headers are sent uncompressed and are the same bytes for every call of a
 * method; the answer's headers are not read at all, because a unary answer with a message in it has succeeded and one
 * without has failed. What is written within one turn of the event loop leaves in one piece. Both sides' flow control
 * is honoured; of its own windows it makes the largest there are.
 *
 * Starts with its construction. A connection that breaks, or is told to go away, fails all its calls and stays broken.
 */
import { connect, type Socket } from 'node:net';
import type { Link } from './link.ts';

const frameType = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, goAway: 7, window: 8 } as const;
const endStream = 0x1;
const ack = 0x1;
const endHeaders = 0x4;
const headBytes = 9;
const frameBytesMax = 16_384;
const windowDefault = 65_535;
const windowMax = 0x7fff_ffff;
const initialWindowSetting = 4;
/** So much is received before the other side is given as much room again. */
const replenishBytes = 1 << 20;
const grpcPrefixBytes = 5;

interface Call {
  resolve(answer: Buffer): void;
  reject(error: Error): void;
  body: Buffer | undefined;
}

interface Sending {
  stream: number;
  message: Buffer;
  at: number;
}

export class LeanConnection implements Link {
  readonly #socket: Socket;
  readonly #authority: string;
  readonly #headers = new Map<string, Buffer>();
  readonly #calls = new Map<number, Call>();
  /** Room that single streams were given beyond the initial window. */
  readonly #streamRoom = new Map<number, number>();
  #nextStream = 1;
  #connectionRoom = windowDefault;
  #initialRoom = windowDefault;
  #receivedBytes = 0;
  #waiting: Sending[] = [];
  #outbox: Buffer[] = [];
  #rest: Buffer | undefined;
  #broken: Error | undefined;

  constructor(address: string) {
    this.#authority = address;
    const colon = address.lastIndexOf(':');
    this.#socket = connect({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)) });
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (bytes) => this.#receive(bytes));
    this.#socket.on('error', (error) => this.#break(error));
    this.#socket.on('close', () => this.#break(new Error('the server closed the connection')));
    const setting = Buffer.alloc(6);
    setting.writeUInt16BE(initialWindowSetting, 0);
    setting.writeUInt32BE(windowMax, 2);
    this.#write(Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1'));
    this.#write(frame(frameType.settings, 0, 0, setting));
    this.#write(windowUpdate(windowMax - windowDefault));
  }

  call(path: string, message: Buffer): Promise<Buffer> {
    if (this.#broken) return Promise.reject(this.#broken);
    return new Promise((resolve, reject) => {
      const stream = this.#nextStream;
      this.#nextStream += 2;
      this.#calls.set(stream, { resolve, reject, body: undefined });
      const headers = Buffer.from(this.#headersOf(path));
      headers.writeUInt32BE(stream, 5);
      this.#write(headers);
      const prefixed = Buffer.allocUnsafe(grpcPrefixBytes + message.length);
      prefixed[0] = 0;
      prefixed.writeUInt32BE(message.length, 1);
      prefixed.set(message, grpcPrefixBytes);
      this.#waiting.push({ stream, message: prefixed, at: 0 });
      this.#send();
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #headersOf(path: string): Buffer {
    const known = this.#headers.get(path);
    if (known) return known;
    const block = Buffer.concat([
      // Entries 3 and 6 of the static table are 'POST' and 'http'; 4, 1 and 31 are names.
      Buffer.from([0x83, 0x86]),
      Buffer.from([0x04]),
      literal(path),
      Buffer.from([0x01]),
      literal(this.#authority),
      Buffer.from([0x0f, 31 - 0x0f]),
      literal('application/grpc'),
      Buffer.from([0x00]),
      literal('te'),
      literal('trailers'),
    ]);
    const made = frame(frameType.headers, endHeaders, 0, block);
    this.#headers.set(path, made);
    return made;
  }

  /** Sends what the windows allow, in the order of the calls. */
  #send(): void {
    for (;;) {
      const next = this.#waiting[0];
      if (!next) return;
      const room = this.#initialRoom + (this.#streamRoom.get(next.stream) ?? 0) - next.at;
      const length = Math.min(next.message.length - next.at, room, this.#connectionRoom, frameBytesMax);
      if (length <= 0) return;
      const end = next.at + length;
      const over = end === next.message.length;
      this.#write(
        frame(frameType.data, over ? endStream : 0, next.stream, next.message.subarray(next.at, end)),
      );
      next.at = end;
      this.#connectionRoom -= length;
      if (over) this.#waiting.shift();
    }
  }

  #write(bytes: Buffer): void {
    if (this.#outbox.push(bytes) > 1) return;
    setImmediate(() => {
      const pieces = this.#outbox;
      this.#outbox = [];
      if (!this.#socket.destroyed) this.#socket.write(Buffer.concat(pieces));
    });
  }

  #receive(bytes: Buffer): void {
    const all = this.#rest ? Buffer.concat([this.#rest, bytes]) : bytes;
    let at = 0;
    while (at + headBytes <= all.length) {
      const end = at + headBytes + all.readUIntBE(at, 3);
      if (end > all.length) break;
      const type = all[at + 3] as number;
      const flags = all[at + 4] as number;
      this.#handle(type, flags, all.readUInt32BE(at + 5) & windowMax, all.subarray(at + headBytes, end));
      at = end;
    }
    this.#rest = at < all.length ? all.subarray(at) : undefined;
  }

  #handle(type: number, flags: number, stream: number, payload: Buffer): void {
    if (type === frameType.data) {
      this.#takeData(stream, payload);
      if (flags & endStream) this.#finish(stream);
    } else if (type === frameType.headers) {
      if (flags & endStream) this.#finish(stream);
    } else if (type === frameType.window) {
      if (stream === 0) this.#connectionRoom += payload.readUInt32BE(0);
      else if (this.#waiting.some((sending) => sending.stream === stream))
        this.#streamRoom.set(stream, (this.#streamRoom.get(stream) ?? 0) + payload.readUInt32BE(0));
      this.#send();
    } else if (type === frameType.settings && !(flags & ack)) {
      this.#takeSettings(payload);
    } else if (type === frameType.ping && !(flags & ack)) {
      this.#write(frame(frameType.ping, ack, 0, payload));
    } else if (type === frameType.reset) {
      this.#fail(stream, new Error(`the server ended a call with HTTP/2 error ${payload.readUInt32BE(0)}`));
    } else if (type === frameType.goAway) {
      this.#break(new Error('the server wants no more calls on this connection'));
    }
  }

  #takeData(stream: number, payload: Buffer): void {
    const call = this.#calls.get(stream);
    // The socket's buffer is not used again, so the answer may stay a view of it.
    if (call) call.body = call.body ? Buffer.concat([call.body, payload]) : payload;
    this.#receivedBytes += payload.length;
    if (this.#receivedBytes < replenishBytes) return;
    this.#write(windowUpdate(this.#receivedBytes));
    this.#receivedBytes = 0;
  }

  #takeSettings(payload: Buffer): void {
    for (let at = 0; at + 6 <= payload.length; at += 6) {
      if (payload.readUInt16BE(at) === initialWindowSetting) this.#initialRoom = payload.readUInt32BE(at + 2);
    }
    this.#write(frame(frameType.settings, ack, 0, Buffer.alloc(0)));
    this.#send();
  }

  #finish(stream: number): void {
    const call = this.#calls.get(stream);
    if (!call) return;
    if (!call.body || call.body.length < grpcPrefixBytes) {
      this.#fail(stream, new Error('the server refused a call; --client grpc-js tells why'));
      return;
    }
    this.#forget(stream);
    call.resolve(call.body.subarray(grpcPrefixBytes));
  }

  #fail(stream: number, error: Error): void {
    this.#calls.get(stream)?.reject(error);
    this.#forget(stream);
  }

  #forget(stream: number): void {
    this.#calls.delete(stream);
    if (this.#streamRoom.size > 0) this.#streamRoom.delete(stream);
  }

  #break(error: Error): void {
    this.#broken ??= error;
    this.#waiting = [];
    for (const stream of [...this.#calls.keys()]) this.#fail(stream, this.#broken);
  }
}

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(headBytes + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(stream, 5);
  bytes.set(payload, headBytes);
  return bytes;
}

function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(frameType.window, 0, 0, payload);
}

/** A string of a header as it is; none here is as long as the 127 characters that one byte of length can tell. */
function literal(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text, 'latin1')]);
}
