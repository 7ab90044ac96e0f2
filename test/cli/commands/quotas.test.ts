/** The command for quotas, and the limits of keys, against a server. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { startKeyedServer } from '../../support/keys.ts';
import { runCommand } from '../../support/process.ts';

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;

  describe('leasehold quotas', () => {
    it('sets, lists and removes the limits of a tenant', async () => {
      await using server = await startKeyedServer(engine);
      const env = { LEASEHOLD_URL: server.http, LEASEHOLD_API_KEY: server.admin.text };
      const run = (...args: string[]) => runCommand(args, env);
      expect((await run('quotas')).stdout).to.equal('No quotas.');
      const set = await run('quotas', 'set', 'shop', '--max-units', '40', '--max-queued', '10000');
      expect(set.code, set.stderr).to.equal(0);
      expect(set.stdout).to.match(/^shop +0 +40 +0 +10,000 +- /m);
      const listed = await run('quotas', 'list', '--json');
      const { quotas } = JSON.parse(listed.stdout) as { quotas: object[] };
      expect(quotas[0]).to.include({ addon_id: 'shop', max_units: 40, max_payload_bytes: null });
      expect((await run('quotas', 'unset', 'shop')).stdout).to.equal('No quota.');
      expect((await run('quotas')).stdout).to.equal('No quotas.');
      const wrong = await Promise.all([
        run('quotas', 'set', 'shop'),
        run('quotas', 'set', 'shop', '--max-units', 'many'),
        run('quotas', 'set', '--max-units', '1'),
      ]);
      expect(wrong.map(({ code }) => code)).to.deep.equal([2, 2, 2]);
    });

    it('stands beside keys with limits of their own', async () => {
      await using server = await startKeyedServer(engine);
      const env = { LEASEHOLD_URL: server.http, LEASEHOLD_API_KEY: server.admin.text };
      const create = (...more: string[]) =>
        runCommand(['keys', 'create', '--name', 'slow', '--role', 'submitter', '--json', ...more], env);
      const created = await create('--rate', 'submit=100,burst=5', '--max-streams', '20');
      expect(created.code, created.stderr).to.equal(0);
      const { key } = JSON.parse(created.stdout) as { key: { key_id: string; limits: object } };
      expect(key.limits).to.deep.equal({ submit_per_s: 100, read_per_s: null, burst_s: 5, max_streams: 20 });
      const shown = await runCommand(['keys', 'show', key.key_id], env);
      expect(shown.stdout).to.match(/submit_per_s +100/);
      for (const rate of ['write=1', 'submit', 'submit=x', 'burst=0'])
        expect((await create('--rate', rate)).code, rate).to.equal(2);
    });
  });
});
