/**
 * The open connections of one HTTP port, with the requests on them.
 *
 * Guarantees: an old connection ends without a lost request. Its next answer says `connection: close`; if no
 * request is open, it ends at once. What is still open after the time of grace is cut. When the server stops,
 * connections without a request do not delay it.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ageOf, ageTimes } from '../../lib/net/connection-age.ts';

/**
 * The most requests that a connection may send ahead of their answers. A client that sends more does not read
 * them.
 */
const aheadMax = 100;

interface Connection {
  requests: number;
  isOld: boolean;
}

export class HttpConnections {
  readonly #ageS: number;
  readonly #open = new Map<Socket, Connection>();
  /** The connections below those of TLS, from before their handshake. */
  readonly #raw = new Set<Socket>();
  #isStopping = false;

  constructor(ageS: number) {
    this.#ageS = ageS;
  }

  followHandshake(socket: Socket): void {
    this.#raw.add(socket);
    socket.once('close', () => this.#raw.delete(socket));
  }

  follow(socket: Socket): void {
    const connection: Connection = { requests: 0, isOld: false };
    this.#open.set(socket, connection);
    const ageMs = ageOf(this.#ageS);
    let timer: NodeJS.Timeout | undefined;
    if (ageMs !== undefined) {
      timer = setTimeout(() => {
        connection.isOld = true;
        if (connection.requests === 0) socket.end();
        timer = setTimeout(() => socket.destroy(), ageTimes.graceMs).unref();
      }, ageMs).unref();
    }
    socket.once('close', () => {
      clearTimeout(timer);
      this.#open.delete(socket);
    });
  }

  /** Counts a request until its answer is over. */
  occupy(socket: Socket, response: ServerResponse): void {
    const connection = this.#open.get(socket);
    if (!connection) return;
    connection.requests += 1;
    if (connection.requests > aheadMax) socket.destroy();
    if (connection.isOld) response.setHeader('connection', 'close');
    response.once('close', () => {
      connection.requests -= 1;
      if (this.#isStopping && connection.requests === 0) socket.end();
    });
  }

  /** Node closes neither a connection that never sent a request nor one whose request is answered later. */
  stop(): void {
    this.#isStopping = true;
    for (const [socket, { requests }] of this.#open) if (requests === 0) socket.destroy();
  }

  destroyAll(): void {
    for (const socket of [...this.#open.keys(), ...this.#raw]) socket.destroy();
  }
}
