/** What the doctor and the metrics of a running server say of its keys and its certificate. */
import { expect } from 'chai';
import { Authority, CertificateFiles } from '../support/certificates.ts';
import { onEveryEngine } from '../support/engines.ts';
import type { Body } from '../support/jobs-api.ts';
import { createKey, startKeyedServer } from '../support/keys.ts';
import { eventually, startTestServer } from '../support/server.ts';

const dayMs = 86_400_000;

onEveryEngine((engine) => {
  describe('the health of access', () => {
    it('names keys that expire soon in the findings of the doctor, and all in a metric', async () => {
      await using server = await startKeyedServer(engine);
      const { headers } = server.admin;
      const days = { soon: 3, later: 60, past: -1 };
      for (const [name, count] of Object.entries(days))
        await createKey(server.database, {
          name,
          roles: ['worker'],
          expiresAtMs: Date.now() + count * dayMs,
        });
      const response = await fetch(`${server.http}/api/system/doctor`, { headers });
      const { findings } = (await response.json()) as Body;
      const found = (code: string): Body => findings.find((one: Body) => one.code === code);
      expect(found('keys_expiring')).to.include({ area: 'access', level: 'WARN' });
      expect(found('keys_expiring').text).to.equal('1 key will expire within 14 days: soon');
      expect(found('keys_unused')).to.include({ level: 'OK' });
      expect(found('admin_keys').text).to.equal('1 key for administrators: first');
      expect(found('posture').text).to.include('authentication by keys, no TLS');
      expect(found('certificate')).to.equal(undefined);
      const series = await eventually('the metric has both keys', async () => {
        const text = await (await fetch(`${server.http}/metrics`, { headers })).text();
        const lines = [...text.matchAll(/^leasehold_key_expires_seconds\{key="(\w+)"\} (\S+)$/gm)];
        return lines.length >= 2 ? lines.map(([, key, value]) => [key, Number(value)]) : undefined;
      });
      expect(series.map(([key]) => key)).to.deep.equal(['soon', 'later']);
      expect(series[0]?.[1]).to.be.within(2.9 * 86_400, 3 * 86_400);
    });

    it('has metrics of the certificate, and of failures to read its files', async () => {
      const authority = await Authority.create();
      const files = await CertificateFiles.create(await authority.issue('localhost'));
      const { certFile: tlsCertFile, keyFile: tlsKeyFile } = files;
      await using server = await startTestServer(engine, {
        settings: { tlsCertFile, tlsKeyFile, tlsReloadS: 1 },
      });
      const metric = (name: string): number =>
        Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(server.running.metrics.registry.render())?.[1]);
      expect(metric('leasehold_tls_certificate_expires_seconds')).to.be.within(86_400, 2 * 86_400);
      expect(metric('leasehold_tls_reload_failures_total')).to.equal(0);
      await files.write('tls.key', 'no key');
      await eventually('the failure is counted', async () =>
        metric('leasehold_tls_reload_failures_total') > 0 ? true : undefined,
      );
      server.complaints.splice(0);
    });
  });
});
