import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  CredentialError,
  certificatesOf,
  credentialHeaders,
  credentialOf,
} from '../../src/client/credentials.ts';
import { temporaryFolder } from '../support/cleanup.ts';

describe('the credentials of a client', () => {
  const sent = (url: string, env = {}) => {
    try {
      return credentialHeaders(new URL(url), 'lhk_x', env).authorization;
    } catch (error) {
      if (error instanceof CredentialError) return 'refused';
      throw error;
    }
  };

  it('are sent over TLS, and in clear text on loopback alone', () => {
    for (const url of ['https://example.org', 'http://localhost:1', 'http://127.0.0.9', 'http://[::1]:80'])
      expect(sent(url), url).to.equal('Bearer lhk_x');
    for (const url of [
      'http://example.org',
      'http://10.0.0.1',
      'http://localhost.example.org',
      'http://[::2]',
    ])
      expect(sent(url), url).to.equal('refused');
    expect(sent('http://10.0.0.1', { LEASEHOLD_INSECURE: 'no-tls' })).to.equal('Bearer lhk_x');
    expect(sent('http://10.0.0.1', { LEASEHOLD_INSECURE: 'no-auth' })).to.equal('refused');
  });

  it('are those of the variable, or else of the file', async () => {
    const file = join(await temporaryFolder('key'), 'key');
    await writeFile(file, 'lhk_file\n');
    expect(credentialOf({})).to.equal(undefined);
    expect(credentialOf({ LEASEHOLD_API_KEY_FILE: file })).to.equal('lhk_file');
    expect(credentialOf({ LEASEHOLD_API_KEY_FILE: file, LEASEHOLD_API_KEY: 'lhk_own' })).to.equal('lhk_own');
    // The last text stays in use while the file is being replaced.
    await rename(file, `${file}.gone`);
    expect(credentialOf({ LEASEHOLD_API_KEY_FILE: file })).to.equal('lhk_file');
  });

  it('may be a token in a file, which counts after a key, and is never empty', async () => {
    const file = join(await temporaryFolder('token'), 'token');
    await writeFile(file, 'header.body.signature\n');
    const env = { LEASEHOLD_TOKEN_FILE: file };
    expect(credentialOf(env)).to.equal('header.body.signature');
    const key = join(await temporaryFolder('key'), 'key');
    await writeFile(key, 'lhk_file');
    expect(credentialOf({ ...env, LEASEHOLD_API_KEY_FILE: key })).to.equal('lhk_file');
    const empty = join(await temporaryFolder('token'), 'token');
    await writeFile(empty, '\n');
    expect(() => credentialOf({ LEASEHOLD_TOKEN_FILE: empty })).to.throw('LEASEHOLD_TOKEN_FILE');
  });

  it('are read again after a minute, and the last ones stay in use while the file is empty', async () => {
    const file = join(await temporaryFolder('token'), 'token');
    await writeFile(file, 'first');
    let nowMs = 0;
    const read = () => credentialOf({ LEASEHOLD_TOKEN_FILE: file }, () => nowMs);
    expect(read()).to.equal('first');
    await writeFile(file, 'second');
    expect(read(), 'in the same minute').to.equal('first');
    nowMs += 60_000;
    expect(read()).to.equal('second');
    await writeFile(file, '');
    nowMs += 60_000;
    expect(read()).to.equal('second');
  });

  it('fail where the file was never there, and name the variable', () => {
    for (const variable of ['LEASEHOLD_API_KEY_FILE', 'LEASEHOLD_TOKEN_FILE'])
      expect(() => credentialOf({ [variable]: '/nowhere/key' }))
        .to.throw(CredentialError)
        .and.have.property('message')
        .that.includes(variable);
  });

  it('may be a certificate, which needs its key', async () => {
    const folder = await temporaryFolder('certificate');
    const [cert, key] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
    await writeFile(cert, 'certificate');
    await writeFile(key, 'key');
    const both = { LEASEHOLD_CLIENT_CERT_FILE: cert, LEASEHOLD_CLIENT_KEY_FILE: key };
    expect(certificatesOf(both)).to.deep.equal({
      cert: Buffer.from('certificate'),
      key: Buffer.from('key'),
    });
    for (const one of [{ LEASEHOLD_CLIENT_CERT_FILE: cert }, { LEASEHOLD_CLIENT_KEY_FILE: key }])
      expect(() => certificatesOf(one)).to.throw('need each other');
    expect(() => certificatesOf({ ...both, LEASEHOLD_CLIENT_KEY_FILE: '/nowhere' })).to.throw(
      'LEASEHOLD_CLIENT_KEY_FILE',
    );
  });
});
