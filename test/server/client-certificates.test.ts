/**
 * Client certificates as identities, over gRPC, Connect and REST: only a verified certificate that a rule
 * names is a caller, and each way in gives the same verdict.
 */
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { expect } from 'chai';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { Authority, type Certificate, CertificateFiles } from '../support/certificates.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { everywhere, portOf, replaceRules, type Tls, verdictOf, writeRules } from '../support/identities.ts';
import { type KeyedServer, startKeyedServer, type TestKey } from '../support/keys.ts';
import { describeWith } from '../support/programs.ts';
import { eventually, startTestServer } from '../support/server.ts';

const gpu = 'spiffe://prod.test/ns/jobs/sa/gpu';
const shopScopes = { addon_ids: ['shop'], streams: ['*'], job_types: ['*'] };
const rules = [
  { when: { spiffe_id: gpu }, roles: ['worker'], worker_ids: ['gpu-*'], scopes: { addon_ids: ['*'] } },
  { when: { dns_name: 'shop.test' }, roles: ['submitter', 'observer'], scopes: shopScopes },
];

/** A time as openssl takes it. */
const openssl = (ms: number): string => `${new Date(ms).toISOString().replace(/\D/g, '').slice(0, 14)}Z`;

describeWith('openssl', 'client certificates', () => {
  onEveryEngine((engine) => {
    let authority: Authority;
    let files: CertificateFiles;
    let rulesFile: string;
    let on: KeyedServer;
    let key: TestKey;
    const settings = async () => ({
      auth: ['keys', 'mtls'] as const,
      accessRulesFile: rulesFile,
      tlsCertFile: files.certFile,
      tlsKeyFile: files.keyFile,
      tlsClientCaFile: await files.write('ca.crt', authority.cert),
      tlsClientAuth: 'request' as const,
      tlsReloadS: 1,
      rateAnonymous: 0,
    });

    before(async () => {
      authority = await Authority.create();
      files = await CertificateFiles.create(await authority.issue('localhost'));
      rulesFile = await writeRules(...rules);
      on = await startKeyedServer(engine, { settings: await settings() });
      key = on.admin;
    });
    after(() => on.stop());

    const tlsOf = (certificate?: Certificate): Tls =>
      certificate
        ? { ca: authority.cert, cert: certificate.cert, key: certificate.key }
        : { ca: authority.cert };
    const named = (...names: string[]) => authority.issue('client', { names });

    it('are callers by their SPIFFE id or their DNS name', async () => {
      const byUri = await named(`URI.1 = ${gpu}`, 'DNS.1 = anything.test');
      expect(await verdictOf(on, undefined, tlsOf(byUri))).to.deep.equal(everywhere(`cert ${gpu}`));
      const byDns = await named('DNS.1 = SHOP.test');
      expect(await verdictOf(on, undefined, tlsOf(byDns))).to.deep.equal(everywhere('cert shop.test'));
    });

    it('are refused without a rule, and with more than one URI', async () => {
      const unknown = await named('URI.1 = spiffe://prod.test/ns/jobs/sa/other', 'DNS.1 = other.test');
      expect(await verdictOf(on, undefined, tlsOf(unknown))).to.deep.equal(everywhere('permission_denied'));
      const common = await authority.issue('shop.test', { names: ['DNS.1 = other.test'] });
      expect(await verdictOf(on, undefined, tlsOf(common)), 'the common name is no name').to.deep.equal(
        everywhere('permission_denied'),
      );
      const two = await named(`URI.1 = ${gpu}`, 'URI.2 = spiffe://prod.test/ns/jobs/sa/other');
      expect(await verdictOf(on, undefined, tlsOf(two))).to.deep.equal(everywhere('unauthenticated'));
      const twoAndDns = await named(`URI.1 = ${gpu}`, 'URI.2 = https://a.test', 'DNS.1 = shop.test');
      expect(await verdictOf(on, undefined, tlsOf(twoAndDns))).to.deep.equal(everywhere('unauthenticated'));
      const inside = await named(`URI.1 = https://a.test/, URI:${gpu}, DNS:shop.test`);
      expect(await verdictOf(on, undefined, tlsOf(inside)), 'names inside of a name').to.deep.equal(
        everywhere('permission_denied'),
      );
    });

    it('are no callers unless the handshake has verified them, and a key counts then', async () => {
      const stranger = await Authority.create('Test authority');
      const day = 86_400_000;
      const now = Date.now();
      const past = ['-startdate', openssl(now - 2 * day), '-enddate', openssl(now - day)];
      const future = ['-startdate', openssl(now + day), '-enddate', openssl(now + 2 * day)];
      const wrong: Record<string, Certificate | undefined> = {
        none: undefined,
        'another authority': await stranger.issue('x', { names: [`URI.1 = ${gpu}`] }),
        expired: await authority.issue('x', { names: [`URI.1 = ${gpu}`], dates: past }),
        'not yet valid': await authority.issue('x', { names: [`URI.1 = ${gpu}`], dates: future }),
      };
      for (const [name, certificate] of Object.entries(wrong)) {
        expect(await verdictOf(on, undefined, tlsOf(certificate)), name).to.deep.equal(
          everywhere('unauthenticated'),
        );
        expect(await verdictOf(on, key.text, tlsOf(certificate)), name).to.deep.equal(
          everywhere(`key ${key.keyId}`),
        );
      }
    });

    it('count only where no bearer is sent, even a wrong one', async () => {
      const certificate = await named(`URI.1 = ${gpu}`);
      expect(await verdictOf(on, key.text, tlsOf(certificate))).to.deep.equal(everywhere(`key ${key.keyId}`));
      expect(await verdictOf(on, `${key.text}x`, tlsOf(certificate))).to.deep.equal(
        everywhere('unauthenticated'),
      );
    });

    it('are those of the first handshake in a resumed session, and none where there was none', async () => {
      const resumed = async (certificate?: Certificate) => {
        const options = { host: '127.0.0.1', port: portOf(on.http), ...tlsOf(certificate) };
        const first = connect(options);
        first.write('GET /api/access/whoami HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n');
        const [session] = (await once(first, 'session')) as [Buffer];
        first.destroy();
        const again = connect({ ...options, session });
        again.write('GET /api/access/whoami HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n');
        await once(again, 'secureConnect');
        expect(again.isSessionReused()).to.equal(true);
        return text(again);
      };
      expect(await resumed()).to.match(/^HTTP\/1.1 401 /);
      expect(await resumed(await named('DNS.1 = shop.test'))).to.include('"id":"shop.test"');
    });

    it('give the rights of their rule, and no others', async () => {
      const certificate = await named(`URI.1 = ${gpu}`);
      const client = connectLeasehold(`https://127.0.0.1:${portOf(on.grpc)}`, tlsOf(certificate));
      try {
        const me = await client.keys.whoAmI({});
        expect(me.workerIds).to.deep.equal(['gpu-*']);
        expect(me.permissions).to.include('leases.work').and.not.include('keys.manage');
        expect(String(await failure(client.keys.listKeys({})))).to.include('permission_denied');
        const other = client.jobs.claimJobs({ workerId: 'other-1' });
        expect(String(await failure(other))).to.include('permission_denied');
      } finally {
        client.close();
      }
    });

    it('end their streams when they expire, and count no longer on an open connection', async () => {
      const endMs = Math.ceil(Date.now() / 1_000) * 1_000 + 8_000;
      const dates = ['-startdate', openssl(Date.now() - 60_000), '-enddate', openssl(endMs)];
      const certificate = await authority.issue('client', { names: ['DNS.1 = shop.test'], dates });
      const client = connectLeasehold(`https://127.0.0.1:${portOf(on.grpc)}`, tlsOf(certificate));
      try {
        const watch = async () => {
          for await (const _ of client.stats.watchSnapshots({ addonId: 'shop' }));
        };
        expect((await client.keys.whoAmI({})).id).to.equal('shop.test');
        expect(String(await failure(watch()))).to.include('unauthenticated');
        expect(Date.now()).to.be.at.least(endMs);
        expect(String(await failure(client.keys.whoAmI({})))).to.include('unauthenticated');
      } finally {
        client.close();
      }
    }).timeout(40_000);

    it('are in force with `require` as with `request`, and lose their rights with their rule', async () => {
      await using strict = await startTestServer(engine, {
        settings: { ...(await settings()), auth: ['mtls'], tlsClientAuth: 'require' },
      });
      expect(await verdictOf(strict, undefined, tlsOf())).to.deep.equal(everywhere('closed'));
      const certificate = await named(`URI.1 = ${gpu}`);
      const tls = tlsOf(certificate);
      expect(await verdictOf(strict, undefined, tls)).to.deep.equal(everywhere(`cert ${gpu}`));
      expect(await verdictOf(strict, key.text, tls), 'keys are off').to.deep.equal(
        everywhere('unauthenticated'),
      );
      await replaceRules(rulesFile, ...rules.slice(1));
      await eventually('the rule is gone', async () =>
        (await verdictOf(strict, undefined, tls)).grpc === 'permission_denied' ? true : undefined,
      );
      await replaceRules(rulesFile, ...rules);
    });

    it('are no identities where keys alone are configured', async () => {
      await using plain = await startKeyedServer(engine, {
        settings: { ...(await settings()), auth: ['keys'], accessRulesFile: undefined },
      });
      const certificate = await named(`URI.1 = ${gpu}`);
      expect(await verdictOf(plain, undefined, tlsOf(certificate))).to.deep.equal(
        everywhere('unauthenticated'),
      );
      expect(await verdictOf(plain, plain.admin.text, tlsOf(certificate))).to.deep.equal(
        everywhere(`key ${plain.admin.keyId}`),
      );
    });
  });
});
