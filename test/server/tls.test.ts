/** TLS on both ports: what is refused, client certificates, and certificates that are replaced under load. */
import { writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { expect } from 'chai';
import { connectLeasehold } from '../../src/client/grpc-client.ts';
import { Authority, type Certificate, CertificateFiles } from '../support/certificates.ts';
import { onEveryEngine } from '../support/engines.ts';
import { failure } from '../support/failure.ts';
import { describeWith } from '../support/programs.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';

interface Tls {
  ca: string;
  cert?: string;
  key?: string;
}

describeWith('openssl', 'TLS', () => {
  onEveryEngine((engine) => {
    let authority: Authority;
    let server: Certificate;
    let files: CertificateFiles;

    before(async () => {
      authority = await Authority.create();
      server = await authority.issue('localhost');
    });
    beforeEach(async () => {
      files = await CertificateFiles.create(server);
    });

    const start = (more: object = {}) =>
      startTestServer(engine, {
        settings: { tlsCertFile: files.certFile, tlsKeyFile: files.keyFile, tlsReloadS: 1, ...more },
      });

    const portOf = (address: string): number => Number(address.split(':').at(-1));

    const get = (on: TestServer, path: string, tls: Tls): Promise<{ status: number; said: string }> =>
      new Promise((resolve, reject) => {
        const options = { host: '127.0.0.1', port: portOf(on.http), path, agent: false, ...tls };
        request(options, (response) => {
          text(response).then((said) => resolve({ status: response.statusCode ?? 0, said }), reject);
        })
          .on('error', reject)
          .end();
      });

    const clientOf = (on: TestServer, tls: Tls) =>
      connectLeasehold(`https://127.0.0.1:${portOf(on.grpc)}`, { apiKey: undefined, ...tls });

    /** A call over a connection of its own. */
    const callOnce = (on: TestServer, tls: Tls, timeoutMs: number) => {
      const client = clientOf(on, tls);
      return client.stats.getCapacity({}, { timeoutMs }).finally(client.close);
    };

    it('serves REST and gRPC, and nothing in clear text', async () => {
      await using on = await start();
      const tls = { ca: authority.cert };
      expect((await get(on, '/healthz', tls)).status).to.equal(200);
      expect((await callOnce(on, tls, 10_000)).capacity?.total).to.equal(100);
      await failure(fetch(`http://127.0.0.1:${portOf(on.http)}/healthz`));
      const plain = connectLeasehold(`127.0.0.1:${portOf(on.grpc)}`, { apiKey: undefined });
      await failure(plain.stats.getCapacity({}, { timeoutMs: 2_000 }));
    });

    it('refuses versions before 1.2', async () => {
      await using on = await start();
      for (const address of [on.http, on.grpc]) {
        const old = await new Promise<string>((resolve) => {
          const socket: TLSSocket = connect(
            {
              port: portOf(address),
              host: '127.0.0.1',
              ca: authority.cert,
              maxVersion: 'TLSv1.1',
              minVersion: 'TLSv1',
            },
            () => {
              resolve('connected');
              socket.destroy();
            },
          );
          socket.on('error', () => resolve('refused'));
        });
        expect(old).to.equal('refused');
      }
    });

    it('demands client certificates of its own authority, also after one is revoked', async () => {
      const [client, revoked] = [await authority.issue('client'), await authority.issue('revoked')];
      const stranger = await (await Authority.create('Other authority')).issue('client');
      await using on = await start({
        tlsClientCaFile: await files.write('ca.crt', authority.cert),
        tlsClientAuth: 'require',
        tlsCrlFile: await files.write('crl.pem', await authority.revoke(revoked)),
      });
      const by = async (certificate: Certificate | undefined): Promise<string[]> => {
        const { cert, key } = certificate ?? {};
        const tls = { ca: authority.cert, ...(cert && key ? { cert, key } : {}) };
        const rest = get(on, '/healthz', tls).then(({ status }) => String(status));
        const grpc = callOnce(on, tls, 3_000);
        return Promise.all([
          rest.catch(() => 'refused'),
          grpc.then(
            () => '200',
            () => 'refused',
          ),
        ]);
      };
      expect(await by(client)).to.deep.equal(['200', '200']);
      expect(await by(undefined)).to.deep.equal(['refused', 'refused']);
      expect(await by(stranger)).to.deep.equal(['refused', 'refused']);
      expect(await by(revoked)).to.deep.equal(['refused', 'refused']);
    });

    it('replaces its certificate without a failed call, once the files fit together', async () => {
      await using on = await start();
      const tls = { ca: authority.cert };
      let isOver = false;
      const outcomes = { done: 0, failed: [] as unknown[] };
      const load = async (call: () => Promise<unknown>) => {
        while (!isOver) {
          await call().then(
            () => outcomes.done++,
            (error: unknown) => outcomes.failed.push(error),
          );
          // A call that fails at once leaves the event loop no turn.
          await setImmediate();
        }
      };
      const client = clientOf(on, tls);
      const callers = [
        load(() => client.stats.getCapacity({})),
        load(() => get(on, '/healthz', tls)),
        load(() => callOnce(on, tls, 10_000)),
      ];
      const serialOf = (address: string) =>
        new Promise<string>((resolve, reject) => {
          const options = { port: portOf(address), host: '127.0.0.1', ca: authority.cert };
          const socket: TLSSocket = connect({ ...options, ALPNProtocols: ['h2', 'http/1.1'] }, () => {
            resolve(socket.getPeerCertificate().serialNumber);
            socket.destroy();
          });
          socket.on('error', reject);
        });
      try {
        const next = await authority.issue('localhost');
        // In the middle of a rotation: the new certificate beside the old key.
        await writeFile(files.certFile, next.cert);
        await eventually('the server complains', async () =>
          on.complaints.find(({ msg }) => /TLS/.test(msg)),
        );
        expect(Number.parseInt(await serialOf(on.grpc), 16)).to.equal(Number.parseInt(server.serial, 16));
        await files.replace(next);
        for (const address of [on.http, on.grpc])
          await eventually('the new certificate', async () => {
            const serial = Number.parseInt(await serialOf(address), 16);
            return serial === Number.parseInt(next.serial, 16) || undefined;
          });
      } finally {
        // Callers that go on without a server would fail at once, for ever.
        isOver = true;
        await Promise.all(callers);
      }
      expect(outcomes.failed).to.deep.equal([]);
      expect(outcomes.done).to.be.greaterThan(20);
    });

    it('does not start with files that cannot be used', async () => {
      const other = await authority.issue('localhost');
      await writeFile(files.keyFile, other.key);
      expect(String(await failure(start()))).to.include('does not belong to the certificate');
      await writeFile(files.keyFile, 'no key');
      await failure(start());
      expect(String(await failure(start({ tlsKeyFile: '/nowhere/tls.key' })))).to.include(
        'LEASEHOLD_TLS_KEY_FILE',
      );
    });
  });
});
