/** The guarantee: what is configured is in force, or the start fails with the name of the setting. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { openIdentities } from '../../../../src/engine/access/identities/open-identities.ts';
import { createLog } from '../../../../src/lib/log.ts';
import { failure } from '../../../support/failure.ts';
import { writeRules } from '../../../support/identities.ts';
import { Issuer } from '../../../support/issuer.ts';
import { root } from '../../../support/source-graph.ts';

const run = promisify(execFile);
const log = createLog({ level: 'silent', human: false });
const tokenRule = { when: { claims: { sub: 'shop' } }, roles: ['submitter'] };
const certificateRule = { when: { dns_name: 'shop.test' }, roles: ['submitter'] };

describe('the opening of identities', () => {
  let issuer: Issuer;

  before(async () => {
    issuer = await Issuer.start();
  });
  after(() => issuer.stop());

  const settingsOf = (accessRulesFile: string | undefined, more: object = {}) => ({
    ...issuer.settings(accessRulesFile ?? ''),
    accessRulesFile,
    jwtJwksFile: undefined,
    jwtCaFile: undefined,
    jwtAlgorithms: ['ES256'],
    jwtMaxAgeS: 0,
    tlsReloadS: 60,
    ...more,
  });

  it('fails with the setting that cannot be used', async () => {
    const [tokens, certificates] = [await writeRules(tokenRule), await writeRules(certificateRule)];
    const wrong: [string | undefined, object, string][] = [
      [undefined, {}, 'LEASEHOLD_ACCESS_RULES_FILE'],
      ['/nowhere/rules.json', {}, 'LEASEHOLD_ACCESS_RULES_FILE: the file cannot be read'],
      [await writeRules(), {}, 'LEASEHOLD_ACCESS_RULES_FILE: rules: must have at least 1 item'],
      [await writeRules({ roles: ['admin'] }), {}, 'LEASEHOLD_ACCESS_RULES_FILE: rules[0].when: is required'],
      [certificates, {}, 'LEASEHOLD_ACCESS_RULES_FILE: no rule has claims'],
      [certificates, { auth: ['mtls', 'jwt'] }, 'LEASEHOLD_ACCESS_RULES_FILE: no rule has claims'],
      [tokens, { auth: ['mtls'] }, 'LEASEHOLD_ACCESS_RULES_FILE: no rule has spiffe_id'],
      [tokens, { jwtIssuer: undefined }, 'LEASEHOLD_JWT_ISSUER'],
      [tokens, { jwtAudience: undefined }, 'LEASEHOLD_JWT_AUDIENCE'],
      [tokens, { jwtJwksUrl: undefined }, 'LEASEHOLD_JWT_JWKS_URL'],
      [tokens, { jwtJwksUrl: `${issuer.url.replace(/\d+$/, '1')}/jwks` }, 'LEASEHOLD_JWT_JWKS_URL: '],
      [tokens, { jwtJwksUrl: undefined, jwtJwksFile: '/nowhere' }, 'LEASEHOLD_JWT_JWKS_FILE: the file'],
      [tokens, { jwtJwksUrl: undefined, jwtJwksFile: tokens }, 'LEASEHOLD_JWT_JWKS_FILE: '],
      [tokens, { jwtCaFile: '/nowhere' }, 'LEASEHOLD_JWT_CA_FILE: the file cannot be read'],
    ];
    for (const [file, more, words] of wrong)
      expect(String(await failure(openIdentities(settingsOf(file, more), log))), words).to.include(words);
  });

  it('opens nothing for keys alone, and only what is configured', async () => {
    expect(await openIdentities(settingsOf(undefined, { auth: ['keys'] }), log)).to.equal(undefined);
    const both = await writeRules(tokenRule, certificateRule);
    const opened = await openIdentities(settingsOf(both, { auth: ['mtls'] }), log);
    expect(opened).to.include({ tokens: undefined, takesCertificates: true });
    const tokens = await openIdentities(settingsOf(both), log);
    expect(tokens).to.include({ takesCertificates: false });
    const principal = await tokens?.tokens?.verify(await issuer.token());
    expect(principal).to.deep.include({ kind: 'jwt', id: 'shop', roles: ['submitter'] });
  });

  it('loads the library of tokens only where tokens are configured', async () => {
    const script = `
      import { registerHooks } from 'node:module';
      let count = 0;
      registerHooks({
        resolve(name, context, next) {
          const found = next(name, context);
          if (found.url.includes('/node_modules/jose/')) count++;
          return found;
        },
      });
      const [server, verifier] = process.argv.slice(1);
      await import(server);
      const before = count;
      await import(verifier);
      console.log(JSON.stringify([before, count > 0]));
    `;
    const modules = ['server.ts', 'engine/access/identities/token-verifier.ts'].map(
      (path) => pathToFileURL(join(root, 'src', path)).href,
    );
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', script, ...modules]);
    expect(JSON.parse(stdout)).to.deep.equal([0, true]);
  }).timeout(60_000);

  it('gives a subject one holder, whatever token it comes with', async () => {
    const opened = await openIdentities(settingsOf(await writeRules(tokenRule)), log);
    const holderOf = async (claims: object) =>
      (await opened?.tokens?.verify(await issuer.token({ ...claims, jti: String(Math.random()) })))?.holder;
    const holder = await holderOf({});
    expect(holder).to.equal(JSON.stringify(['jwt', issuer.url, 'shop']));
    expect(await holderOf({ exp: Math.floor(Date.now() / 1_000) + 60 })).to.equal(holder);
  });
});
