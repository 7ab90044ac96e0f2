import { expect } from 'chai';
import { networkOf } from '../../../src/lib/net/address-of.ts';

describe('the network of a peer', () => {
  it('is an IPv4 address, with or without a port, also in IPv6 form', () => {
    for (const peer of ['192.0.2.7', '192.0.2.7:50051', '::ffff:192.0.2.7', '::ffff:192.0.2.7:50051'])
      expect(networkOf(peer), peer).to.equal('192.0.2.7');
  });

  it('is the first 64 bits of an IPv6 address', () => {
    const same = [
      '2001:db8:1:2::1',
      '2001:DB8:1:2:ffff::9',
      '2001:db8:1:2::1:50051',
      '2001:0db8:1:2:3:4:5:6',
    ];
    for (const peer of same) expect(networkOf(peer), peer).to.equal('2001:db8:1:2::/64');
    expect(networkOf('2001:db8:1:3::1')).to.equal('2001:db8:1:3::/64');
    expect(networkOf('::1')).to.equal('0:0:0:0::/64');
    expect(networkOf('fe80::1%eth0')).to.equal('fe80:0:0:0::/64');
  });

  it('is the text itself if it is no address', () => {
    expect(networkOf('unknown')).to.equal('unknown');
  });
});
