/** The guarantee: a client uses the certificate that is in its files when it connects. */
import { expect } from 'chai';
import { connectLeasehold, type LeaseholdClient } from '../../src/client/grpc-client.ts';
import { Authority, CertificateFiles } from '../support/certificates.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { portOf, writeRules } from '../support/identities.ts';
import { Issuer } from '../support/issuer.ts';
import { runCommand } from '../support/process.ts';
import { describeWith } from '../support/programs.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const variables = ['LEASEHOLD_CA_FILE', 'LEASEHOLD_CLIENT_CERT_FILE', 'LEASEHOLD_CLIENT_KEY_FILE'] as const;

describeWith('openssl', 'a client with a certificate or a token in a file', () => {
  onEveryEngine((engine) => {
    if (engine.name !== 'embedded') return;
    let authority: Authority;
    let files: CertificateFiles;
    let issuer: Issuer;
    let server: TestServer;
    let caFile: string;

    before(async () => {
      authority = await Authority.create();
      issuer = await Issuer.start();
      const own = await CertificateFiles.create(await authority.issue('localhost'));
      caFile = await own.write('ca.crt', authority.cert);
      files = await CertificateFiles.create(await authority.issue('one.test'));
      const rule = { roles: ['submitter'], scopes: { addon_ids: ['*'] } };
      server = await startTestServer(engine, {
        settings: {
          ...issuer.settings(
            await writeRules(
              { when: { dns_name: 'one.test' }, ...rule },
              { when: { dns_name: 'two.test' }, ...rule },
              { when: { claims: { sub: 'shop' } }, ...rule },
            ),
          ),
          auth: ['jwt', 'mtls'],
          tlsCertFile: own.certFile,
          tlsKeyFile: own.keyFile,
          tlsClientCaFile: caFile,
          tlsClientAuth: 'request',
        },
      });
    });
    after(async () => {
      await server.stop();
      await issuer.stop();
    });
    afterEach(() => {
      for (const variable of variables) delete process.env[variable];
    });

    const connect = (options = {}): LeaseholdClient =>
      connectLeasehold(`https://127.0.0.1:${portOf(server.grpc)}`, options);
    const nameOf = async (client: LeaseholdClient): Promise<string> => {
      try {
        return (await client.keys.whoAmI({})).id;
      } finally {
        client.close();
      }
    };

    it('uses a renewed certificate from its next connection on', async () => {
      process.env.LEASEHOLD_CA_FILE = caFile;
      process.env.LEASEHOLD_CLIENT_CERT_FILE = files.certFile;
      process.env.LEASEHOLD_CLIENT_KEY_FILE = files.keyFile;
      const client = connect();
      expect(await nameOf(client)).to.equal('one.test');
      await files.replace(await authority.issue('two.test'));
      expect(await nameOf(client), 'the same client, connected again').to.equal('two.test');
      const three = await authority.issue('three.test');
      expect(String(await failure(nameOf(connect({ cert: three.cert, key: three.key }))))).to.include(
        'permission_denied',
      );
    });

    it('shows itself with `leasehold keys check`', async () => {
      const token = await files.write('token', await issuer.token());
      await files.replace(await authority.issue('one.test'));
      const env = {
        LEASEHOLD_URL: `https://127.0.0.1:${portOf(server.http)}`,
        LEASEHOLD_CA_FILE: caFile,
      };
      const certificate = {
        LEASEHOLD_CLIENT_CERT_FILE: files.certFile,
        LEASEHOLD_CLIENT_KEY_FILE: files.keyFile,
      };
      const check = async (more: object) => {
        const { code, stdout, stderr } = await runCommand(['keys', 'check'], { ...env, ...more });
        return code === 0 ? stdout.replace(/ +/g, ' ') : stderr;
      };
      const byToken = await check({ LEASEHOLD_TOKEN_FILE: token });
      expect(byToken)
        .to.include('kind jwt')
        .and.include('id shop')
        .and.match(/expires_at 20/);
      expect(await check(certificate))
        .to.include('kind cert')
        .and.include('id one.test');
      expect(await check({ ...certificate, LEASEHOLD_TOKEN_FILE: token })).to.include('kind jwt');
      expect(await check({})).to.include('unauthenticated');
      const { LEASEHOLD_CLIENT_CERT_FILE: cert } = certificate;
      expect(await check({ LEASEHOLD_CLIENT_CERT_FILE: cert })).to.include('need each other');
    });
  });
});
