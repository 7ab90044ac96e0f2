import { isIPv4, isIPv6 } from 'node:net';

/**
 * The network of a peer, `address` or `address:port`: the IPv4 address itself, or the first 64 bits of an
 * IPv6 address, which one customer usually has as a whole.
 */
export function networkOf(peer: string): string {
  const address = isIPv4(peer) || isIPv6(peer) ? peer : peer.replace(/:\d+$/, '');
  const mapped = address.replace(/^::ffff:(?=\d+\.)/i, '');
  if (!isIPv6(mapped)) return mapped;
  const [head = '', tail] = (mapped.split('%')[0] as string).toLowerCase().split('::');
  const front = head === '' ? [] : head.split(':');
  const back = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : new Array<string>(8 - front.length - back.length).fill('0');
  const groups = [...front, ...zeros, ...back].slice(0, 4);
  return `${groups.map((group) => group.replace(/^0+(?=.)/, '')).join(':')}::/64`;
}
