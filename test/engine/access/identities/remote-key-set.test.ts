/**
 * The guarantee: whatever the issuer does, a token with a known key is verified at once, and one with an
 * unknown key is answered within a bounded time and leads to few requests.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  RemoteKeySet,
  type RemoteKeySetOptions,
} from '../../../../src/engine/access/identities/remote-key-set.ts';
import { createLog } from '../../../../src/lib/log.ts';
import { Authority, CertificateFiles } from '../../../support/certificates.ts';
import { failure } from '../../../support/failure.ts';
import { Issuer, newSigningKey, type SigningKey } from '../../../support/issuer.ts';
import { describeWith } from '../../../support/programs.ts';
import { eventually } from '../../../support/server.ts';

describe('the keys of an issuer', () => {
  let issuer: Issuer;
  let set: RemoteKeySet;
  let lines: string[];

  const open = async (more: Partial<RemoteKeySetOptions> = {}): Promise<RemoteKeySet> => {
    set = await RemoteKeySet.open({
      url: `${issuer.url}/jwks`,
      caFile: undefined,
      log: createLog({ level: 'info', human: false, write: (line) => void lines.push(line) }),
      timeoutMs: 300,
      ...more,
    });
    return set;
  };
  const find = async ({ kid, algorithm: alg }: SigningKey) =>
    set.find({ kid, alg }, { payload: '', signature: '' });
  const rotate = async (kid: string): Promise<SigningKey> => {
    const key = await newSigningKey(kid);
    issuer.keys = [...issuer.keys, key];
    return key;
  };

  beforeEach(async () => {
    lines = [];
    issuer = await Issuer.start();
  });
  afterEach(async () => {
    await set?.stop();
    await issuer.stop();
  });

  it('are fetched once, and again for an unknown key, but only once in a cooldown', async () => {
    await open({ cooldownMs: 0 });
    const [first] = issuer.keys as [SigningKey];
    await find(first);
    await find(first);
    expect(issuer.asked).to.equal(1);
    const next = await rotate('next');
    await Promise.all([find(next), find(next), find(first)]);
    expect(issuer.asked).to.equal(2);
    await set.stop();
    await open({ cooldownMs: 60_000 });
    const unknown = await newSigningKey('unknown');
    for (let i = 0; i < 5; i++) expect(String(await failure(find(unknown)))).to.include('no applicable key');
    expect(issuer.asked, 'the request of the start counts').to.equal(3);
  });

  for (const mood of ['away', 'silent', 'broken'] as const)
    it(`stay in use while the issuer is ${mood}, and an unknown key is refused in time`, async () => {
      await open({ cooldownMs: 0 });
      const [first] = issuer.keys as [SigningKey];
      issuer.mood = mood;
      const unknown = await newSigningKey('unknown');
      const began = performance.now();
      const refused = Promise.all([failure(find(unknown)), failure(find(unknown))]);
      await find(first);
      expect(performance.now() - began, 'a known key waits for nothing').to.be.below(200);
      for (const error of await refused) expect(String(error)).to.include('no applicable key');
      expect(performance.now() - began).to.be.below(3_000);
      await failure(find(unknown));
      expect(lines, 'logged once').to.have.length(1);
      expect(lines[0]).to.include('LEASEHOLD_JWT_JWKS_URL');
      await find(first);
    });

  it('are fetched again in time, so that a key that was withdrawn counts no longer', async () => {
    await open({ refreshMs: 20 });
    const [first] = issuer.keys as [SigningKey];
    issuer.keys = [await newSigningKey('next')];
    let changes = 0;
    set.onChange(() => changes++);
    set.start();
    await eventually('the change', async () => changes > 0 || undefined);
    expect(String(await failure(find(first)))).to.include('no applicable key');
    await find(issuer.keys[0] as SigningKey);
  });

  it('let no more than a hundred tokens wait', async () => {
    await open({ cooldownMs: 0, timeoutMs: 2_000 });
    issuer.mood = 'silent';
    const unknown = await newSigningKey('unknown');
    let settled = 0;
    const all = Array.from({ length: 130 }, () => failure(find(unknown)).then(() => settled++));
    await eventually('the others are refused', async () => settled === 30 || undefined, 1_500);
    await Promise.all(all);
    expect(settled).to.equal(130);
  });

  it('are not opened from what is no key set, and the error names the setting', async () => {
    const answers: [string, string][] = [
      ['no', 'is not JSON'],
      ['{}', 'malformed'],
      ['{"keys": []}', 'no key that verifies'],
      ['{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', 'no key that verifies'],
      [`{"keys": "${'x'.repeat(2 * 1024 * 1024)}"}`, 'more than'],
    ];
    let answer = '';
    const server = createServer((_, response) => response.end(answer)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      for (const [text, words] of answers) {
        answer = text;
        const error = String(await failure(open({ url })));
        expect(error).to.include('LEASEHOLD_JWT_JWKS_URL').and.include(words);
      }
    } finally {
      server.closeAllConnections();
      server.close();
    }
    issuer.mood = 'silent';
    expect(String(await failure(open()))).to.include('no answer in time');
  });
});

describeWith('openssl', 'the keys of an issuer with a private authority', () => {
  it('are fetched only with the authority of the issuer', async () => {
    const authority = await Authority.create();
    const certificate = await authority.issue('localhost');
    const files = await CertificateFiles.create(certificate);
    const issuer = await Issuer.start(certificate);
    const log = createLog({ level: 'silent', human: false });
    const open = (caFile?: string) =>
      RemoteKeySet.open({ url: `${issuer.url}/jwks`, caFile, log, timeoutMs: 2_000 });
    try {
      const set = await open(await files.write('ca.crt', authority.cert));
      const [{ kid, algorithm: alg }] = issuer.keys as [SigningKey];
      await set.find({ kid, alg }, { payload: '', signature: '' });
      await set.stop();
      expect(String(await failure(open()))).to.include('LEASEHOLD_JWT_JWKS_URL');
      const other = await Authority.create('Other authority');
      const wrong = await files.write('other.crt', other.cert);
      expect(String(await failure(open(wrong)))).to.include('LEASEHOLD_JWT_JWKS_URL');
      const missing = join(wrong, 'nowhere');
      expect(String(await failure(open(missing)))).to.include('LEASEHOLD_JWT_CA_FILE');
    } finally {
      await issuer.stop();
    }
  });
});
