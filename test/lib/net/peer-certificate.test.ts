/** The guarantee: names of certificates are read as they were written, and never made of parts of a value. */
import { X509Certificate } from 'node:crypto';
import { expect } from 'chai';
import { alternativeNames, peerCertificateOf } from '../../../src/lib/net/peer-certificate.ts';
import { Authority } from '../../support/certificates.ts';
import { describeWith } from '../../support/programs.ts';

describe('the alternative names of a certificate', () => {
  it('are read one by one, in quotes or not', () => {
    expect(alternativeNames('')).to.deep.equal([]);
    expect(alternativeNames('DNS:a.test, URI:spiffe://t/a, IP Address:::1')).to.deep.equal([
      { type: 'DNS', value: 'a.test' },
      { type: 'URI', value: 'spiffe://t/a' },
      { type: 'IP Address', value: '::1' },
    ]);
    expect(alternativeNames('URI:"spiffe://t/a, URI:spiffe://t/\\"b", DNS:c')).to.deep.equal([
      { type: 'URI', value: 'spiffe://t/a, URI:spiffe://t/"b' },
      { type: 'DNS', value: 'c' },
    ]);
  });

  it('are none at all where the text is not what Node writes', () => {
    const wrong = ['DNS', 'DNS:"a', 'DNS:a"b', 'DNS:a,b', 'DNS:a, :c', 'DNS:"a"b', 'DNS:"\\x"', '1:a'];
    for (const text of wrong) expect(alternativeNames(text), text).to.equal(undefined);
  });
});

describeWith('openssl', 'the certificate of a connection', () => {
  it('is read once for each connection, and only after a verified handshake', async () => {
    const authority = await Authority.create();
    const certificate = new X509Certificate((await authority.issue('Client.test')).cert);
    let reads = 0;
    const socket = (authorized: boolean) => ({
      authorized,
      getPeerX509Certificate: () => {
        reads++;
        return certificate;
      },
    });
    const [connection, other] = [{}, {}];
    const found = peerCertificateOf(connection, () => socket(true));
    expect(found).to.deep.equal({
      kind: 'cert',
      uris: [],
      dnsNames: ['client.test'],
      expiresAtMs: Date.parse(certificate.validTo),
    });
    expect(peerCertificateOf(connection, () => expect.fail('it was read again'))).to.equal(found);
    expect(peerCertificateOf(other, () => socket(false))).to.equal(undefined);
    expect(peerCertificateOf(other, () => expect.fail('it was read again'))).to.equal(undefined);
    expect(peerCertificateOf({}, () => undefined)).to.equal(undefined);
    expect(reads).to.equal(1);
  });
});

describeWith('openssl', 'the alternative names of an issued certificate', () => {
  it('do not come from inside another name', async () => {
    const authority = await Authority.create();
    const names = [
      'URI.1 = spiffe://t/a, URI:spiffe://t/admin',
      'DNS.1 = a.test, DNS:admin.test',
      'otherName.1 = 1.3.6.1.4.1.311.20.2.3;UTF8:x, URI:spiffe://t/admin',
      'DNS.2 = b.test',
    ];
    const { cert } = await authority.issue('x', { names });
    const text = new X509Certificate(cert).subjectAltName ?? '';
    const found = alternativeNames(text);
    expect(
      found?.filter(({ type }) => type === 'URI').map(({ value }) => value),
      text,
    ).to.deep.equal(['spiffe://t/a, URI:spiffe://t/admin']);
    expect(found?.filter(({ type }) => type === 'DNS').map(({ value }) => value)).to.deep.equal([
      'a.test, DNS:admin.test',
      'b.test',
    ]);
  });
});
