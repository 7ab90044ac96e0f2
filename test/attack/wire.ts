/**
 * A hostile peer: raw connections, and the frames of HTTP/2 (RFC 9113) that no client library would send.
 * It writes as fast as the server takes it, and connects again when the server closes a connection.
 */
import { connect, type Socket } from 'node:net';

export interface Target {
  /** `127.0.0.1:1234` */
  grpc: string;
  http: string;
  /** A job's worth of bytes, which the server accepts. */
  seconds: number;
}

export const type = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  windowUpdate: 8,
  continuation: 9,
} as const;
export const flags = { none: 0, endStream: 1, ack: 1, endHeaders: 4 } as const;

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

export function frame(
  kind: number,
  flag: number,
  stream: number,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const bytes = Buffer.alloc(9 + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes[3] = kind;
  bytes[4] = flag;
  bytes.writeUInt32BE(stream, 5);
  bytes.set(payload, 9);
  return bytes;
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

export function setting(id: number, value: number): Buffer {
  const bytes = Buffer.alloc(6);
  bytes.writeUInt16BE(id);
  bytes.writeUInt32BE(value, 2);
  return bytes;
}

const literal = (text: string): Buffer =>
  Buffer.concat([Buffer.from([text.length]), Buffer.from(text, 'latin1')]);

/** The header block of a gRPC call, in literals. Entries 3 and 6 of the static table are POST and http. */
export const grpcBlock = (path: string, more: readonly [string, string][] = []): Buffer =>
  Buffer.concat([
    Buffer.from([0x83, 0x86, 0x04]),
    literal(path),
    Buffer.from([0x01]),
    literal('localhost'),
    ...([['content-type', 'application/grpc'], ['te', 'trailers'], ...more] as const).map(([name, value]) =>
      Buffer.concat([Buffer.from([0x00]), literal(name), literal(value)]),
    ),
  ]);

/** A message with the head that gRPC gives it. */
export function enveloped(message: Uint8Array, isCompressed = false): Buffer {
  const bytes = Buffer.alloc(5 + message.length);
  bytes[0] = isCompressed ? 1 : 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, 5);
  return bytes;
}

/** Each attack comes from addresses of its own: those of other clients are not its business. */
export const attackerAddress = (n = 0): string => `127.0.0.${2 + n}`;

const connectMs = 2_000;
const silent = () => {};

/** One connection. */
export class Peer {
  readonly socket: Socket;
  /** Odd numbers, as clients count streams. */
  #stream = -1;

  private constructor(socket: Socket) {
    this.socket = socket;
  }

  /** Undefined if the server, or the system, refuses the connection. */
  static async open(address: string, from = attackerAddress()): Promise<Peer | undefined> {
    const [host = '', port] = address.split(':');
    const socket = connect({ host, port: Number(port), localAddress: from, noDelay: true });
    socket.on('error', silent);
    // The system of a server that is too busy to accept does not answer at all.
    const tooLate = setTimeout(() => socket.destroy(), connectMs);
    await new Promise((resolve) => socket.once('connect', resolve).once('close', resolve));
    clearTimeout(tooLate);
    if (socket.destroyed) return undefined;
    return new Peer(socket);
  }

  /** Also begins HTTP/2, and reads what the server sends. */
  static async openHttp2(
    address: string,
    settings: Uint8Array = Buffer.alloc(0),
    from?: string,
  ): Promise<Peer | undefined> {
    const peer = await Peer.open(address, from);
    if (!peer) return undefined;
    peer.socket.resume();
    await peer.write(
      Buffer.concat([preface, frame(type.settings, 0, 0, settings), frame(type.settings, flags.ack, 0)]),
    );
    return peer;
  }

  get isClosed(): boolean {
    return this.socket.destroyed;
  }

  nextStream(): number {
    this.#stream += 2;
    return this.#stream;
  }

  /**
   * Waits until the system has taken the bytes: an attacker that is not waited for would fill its own
   * memory.
   */
  async write(bytes: Uint8Array): Promise<void> {
    if (this.isClosed) return;
    if (this.socket.write(bytes)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.socket.off('drain', done);
        this.socket.off('close', done);
        resolve();
      };
      this.socket.on('drain', done);
      this.socket.on('close', done);
    });
  }

  close(): void {
    this.socket.destroy();
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What an attack does, on as many connections at once as it says, until its time is over. */
export async function flood(
  count: number,
  signal: AbortSignal,
  open: () => Promise<Peer | undefined>,
  act: (peer: Peer) => Promise<number>,
): Promise<Counts> {
  const counts: Counts = { units: 0, connections: 0 };
  await Promise.all(
    Array.from({ length: count }, async () => {
      while (!signal.aborted) {
        const peer = await open();
        if (!peer) {
          await pause(20);
          continue;
        }
        counts.connections++;
        while (!signal.aborted && !peer.isClosed) {
          const sent = await act(peer);
          counts.units += sent;
          // Otherwise the answers, and the end of the connection, would never be seen.
          await new Promise((resolve) => setImmediate(resolve));
        }
        peer.close();
      }
    }),
  );
  return counts;
}

/** Keeps as many connections open as it says, which do something once and then every so often. */
export async function hold(
  count: number,
  signal: AbortSignal,
  open: (n: number) => Promise<Peer | undefined>,
  act: (peer: Peer) => Promise<unknown>,
  everyMs = 1_000,
): Promise<Counts> {
  const counts: Counts = { units: 0, connections: 0 };
  const peers: Peer[] = [];
  for (let n = 0; n < count && !signal.aborted; n += 50) {
    const opened = await Promise.all(Array.from({ length: Math.min(50, count - n) }, (_, i) => open(n + i)));
    for (const peer of opened) if (peer) peers.push(peer);
  }
  counts.connections = peers.length;
  while (!signal.aborted) {
    for (const peer of peers) {
      if (signal.aborted) break;
      if (peer.isClosed) continue;
      await act(peer);
      counts.units++;
    }
    await pause(everyMs);
  }
  counts.units = Math.max(counts.units, 1);
  for (const peer of peers) peer.close();
  return counts;
}

export interface Counts {
  /** Frames, requests or messages. */
  units: number;
  connections: number;
}

export interface Attack {
  name: string;
  about: string;
  /** Ends soon after the signal. */
  run(target: Target, signal: AbortSignal): Promise<Counts>;
}
