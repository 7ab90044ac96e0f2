import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { CredentialError, credentialHeaders, credentialOf } from '../../src/client/credentials.ts';
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

  it('fail where the file was never there', () => {
    expect(() => credentialOf({ LEASEHOLD_API_KEY_FILE: '/nowhere/key' })).to.throw(CredentialError);
  });
});
