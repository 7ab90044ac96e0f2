/** Proxies that may say for which client they ask, by addresses and networks. */
import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';

const versionName = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 6 ? 'ipv6' : 'ipv4');

/** An address of IPv4 as a socket that serves both versions shows it: `::ffff:10.0.0.1`. */
const plainAddress = (address: string): string =>
  address.startsWith('::ffff:') && isIP(address.slice(7)) === 4 ? address.slice(7) : address;

export class TrustedProxies {
  readonly #list = new BlockList();
  readonly #isEmpty: boolean;

  constructor(networks: readonly string[]) {
    this.#isEmpty = networks.length === 0;
    for (const network of networks) {
      const [address = '', bits] = network.split('/');
      if (bits === undefined) this.#list.addAddress(address, versionName(address));
      else this.#list.addSubnet(address, Number(bits), versionName(address));
    }
  }

  has(address: string): boolean {
    if (this.#isEmpty) return false;
    const plain = plainAddress(address);
    return isIP(plain) !== 0 && this.#list.check(plain, versionName(plain));
  }

  /** The address of the client of a request. */
  peerOf({ socket, headers }: Pick<IncomingMessage, 'socket' | 'headers'>): string {
    return this.clientOf(socket.remoteAddress ?? 'unknown', headers['x-forwarded-for']?.toString());
  }

  /**
   * The client behind a connection: the last address of `x-forwarded-for` that is no trusted proxy. What
   * stands before it may be the client's invention. Without a trusted proxy the header says nothing.
   */
  clientOf(remote: string, forwardedFor: string | undefined): string {
    let client = remote;
    if (forwardedFor === undefined || !this.has(remote)) return client;
    for (const text of forwardedFor.split(',').reverse()) {
      const address = addressIn(text.trim());
      if (address === undefined) break;
      client = address;
      if (!this.has(client)) break;
    }
    return client;
  }
}

/** Trusts no proxy. */
export const noProxies = new TrustedProxies([]);

/** The address in `10.0.0.1`, `10.0.0.1:5000`, `::1` or `[::1]:5000`. */
function addressIn(text: string): string | undefined {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\](?::\d+)?|([\d.]+)(?::\d+)?)$/.exec(text) ?? [];
  const address = bracketed ?? plain ?? text;
  return isIP(address) === 0 ? undefined : address;
}
