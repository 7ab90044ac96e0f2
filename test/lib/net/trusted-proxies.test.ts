import { expect } from 'chai';
import { TrustedProxies } from '../../../src/lib/net/trusted-proxies.ts';

describe('trusted proxies', () => {
  const proxies = new TrustedProxies(['10.0.0.0/8', '192.0.2.7', 'fd00::/8']);

  it('knows addresses and networks, of IPv4 also as IPv6 shows them', () => {
    for (const address of ['10.1.2.3', '192.0.2.7', 'fd12::1', '::ffff:10.1.2.3'])
      expect(proxies.has(address), address).to.equal(true);
    for (const address of ['11.1.2.3', '192.0.2.8', 'fe80::1', '::ffff:11.1.2.3', 'unknown', ''])
      expect(proxies.has(address), address).to.equal(false);
  });

  it('takes the last address that is no proxy, from a proxy alone', () => {
    for (const [remote, header, client] of [
      ['203.0.113.9', '198.51.100.1', '203.0.113.9'],
      ['10.0.0.1', undefined, '10.0.0.1'],
      ['10.0.0.1', '198.51.100.1', '198.51.100.1'],
      ['::ffff:10.0.0.1', '198.51.100.1:4000', '198.51.100.1'],
      ['10.0.0.1', '1.1.1.1, 198.51.100.1, 10.0.0.2', '198.51.100.1'],
      ['10.0.0.1', '[2001:db8::1]:443', '2001:db8::1'],
      ['10.0.0.1', '2001:db8::1', '2001:db8::1'],
      ['10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
      // What cannot be read may hide anything: the proxy that sent it stays responsible.
      ['10.0.0.1', '198.51.100.1, <script>, 10.0.0.2', '10.0.0.2'],
      ['10.0.0.1', '', '10.0.0.1'],
    ] as const)
      expect(proxies.clientOf(remote, header), `${remote} ${header}`).to.equal(client);
  });
});
