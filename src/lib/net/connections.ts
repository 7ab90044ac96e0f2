/**
 * The connections of both ports: how many there are, and which of them are refused.
 *
 * Guarantees: at most `max` connections, and at most `maxPerAddress` of one address, are open. A connection
 * beyond that is closed before a byte of it is read, before TLS too. Addresses of IPv6 count by their /64
 * network, because a machine there has many addresses. Trusted proxies have no limit by address.
 * An address with a client that misbehaved is refused for `blameMs`; its other connections stay open.
 *
 * Failure modes: a client cannot learn why it is refused. The log names the first refused address of each
 * `silenceMs`, and how many others followed; the metrics count all.
 */
import type { Server, Socket } from 'node:net';
import type { Log } from '../log.ts';
import { networkOf } from './address-of.ts';
import type { TrustedProxies } from './trusted-proxies.ts';

/**
 * How long an address is refused after one of its clients misbehaved, and of how many addresses that is
 * kept.
 */
const blameMs = 10_000;
const blamedMax = 10_000;
/** How long the log says nothing of further refusals. */
const silenceMs = 10_000;

export type RefusalReason = 'total' | 'address' | 'conduct';

export interface ConnectionsOptions {
  max: number;
  maxPerAddress: number;
  proxies: TrustedProxies;
  log: Log;
}

/** The listeners of a server on `connection`, which are called for admitted connections alone. */
type Accept = (socket: Socket) => void;

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #byAddress = new Map<string, number>();
  readonly #open = new Map<string, number>();
  readonly #refused = new Map<string, number>();
  /** Until when addresses are refused, in the order of that. */
  readonly #blamed = new Map<string, number>();
  #total = 0;
  #silentUntil = 0;
  #unlogged = 0;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** Puts the limits before the listeners that a server has by now. */
  guard(server: Server, port: string): void {
    const accept = server.listeners('connection') as Accept[];
    server.removeAllListeners('connection');
    server.on('connection', (socket) => {
      if (this.#admits(socket, port)) for (const each of accept) each.call(server, socket);
    });
  }

  /** Refuses an address for a while, because of what one of its clients did. */
  blame(address: string | undefined): void {
    if (address === undefined || this.#options.proxies.has(address)) return;
    const network = networkOf(address);
    this.#blamed.delete(network);
    this.#blamed.set(network, performance.now() + blameMs);
    const [oldest] = this.#blamed.keys();
    if (this.#blamed.size > blamedMax && oldest !== undefined) this.#blamed.delete(oldest);
    this.#options.log.warn('closed a connection for its conduct', { address });
  }

  /** Open connections by port. */
  get open(): ReadonlyMap<string, number> {
    return this.#open;
  }

  /** Refused connections by port and reason, as `grpc address`. */
  get refused(): ReadonlyMap<string, number> {
    return this.#refused;
  }

  #admits(socket: Socket, port: string): boolean {
    const remote = socket.remoteAddress;
    // Already reset by the client.
    if (remote === undefined) {
      socket.destroy();
      return false;
    }
    const { max, maxPerAddress, proxies } = this.#options;
    const network = networkOf(remote);
    const ofAddress = this.#byAddress.get(network) ?? 0;
    if (this.#total >= max) return this.#refuse(socket, port, remote, 'total');
    if (ofAddress >= maxPerAddress && !proxies.has(remote))
      return this.#refuse(socket, port, remote, 'address');
    if (this.#isBlamed(network)) return this.#refuse(socket, port, remote, 'conduct');
    this.#total++;
    this.#byAddress.set(network, ofAddress + 1);
    add(this.#open, port, 1);
    socket.once('close', () => {
      this.#total--;
      add(this.#open, port, -1);
      const left = (this.#byAddress.get(network) ?? 1) - 1;
      if (left > 0) this.#byAddress.set(network, left);
      else this.#byAddress.delete(network);
    });
    return true;
  }

  #isBlamed(network: string): boolean {
    const until = this.#blamed.get(network);
    if (until === undefined) return false;
    if (until > performance.now()) return true;
    this.#blamed.delete(network);
    return false;
  }

  #refuse(socket: Socket, port: string, address: string, reason: RefusalReason): false {
    socket.destroy();
    add(this.#refused, `${port} ${reason}`, 1);
    this.#unlogged++;
    const now = performance.now();
    if (now >= this.#silentUntil) {
      this.#silentUntil = now + silenceMs;
      const { max, maxPerAddress } = this.#options;
      const limit = { total: max, address: maxPerAddress, conduct: undefined }[reason];
      this.#options.log.warn('refused connections', { port, reason, limit, address, count: this.#unlogged });
      this.#unlogged = 0;
    }
    return false;
  }
}

function add(counts: Map<string, number>, key: string, count: number): void {
  counts.set(key, (counts.get(key) ?? 0) + count);
}
