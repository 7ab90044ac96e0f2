/** The commands for keys and the audit, against a server, and on the database itself. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { startKeyedServer } from '../../support/keys.ts';
import { runCommand } from '../../support/process.ts';
import { eventually } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('leasehold keys', () => {
    it('creates the first key in the database itself, before a server runs on it', async () => {
      const store = await engine.create();
      try {
        const create = ['keys', 'create', '--name', 'ops', '--role', 'admin', '--local'];
        const { code, stdout, stderr } = await runCommand(create, store.env);
        expect(code, stderr).to.equal(0);
        expect(stdout.trim()).to.match(/^lhk_\w{12}_\w{49}$/);
        expect(stderr).to.include('This text is not shown again.');
        const again = await runCommand(create, store.env);
        expect([again.code, again.stdout]).to.deep.equal([1, '']);
        expect(again.stderr).to.include('duplicate_request');
        const listed = await runCommand(['keys', '--local'], store.env);
        expect(listed.stdout).to.match(/^\w{12} +ops +admin +\* +\* +in force/m);
      } finally {
        await store.remove();
      }
    });

    if (engine.name === 'embedded') return;

    it('creates, checks, rotates and revokes keys, and lists that in the audit', async () => {
      await using server = await startKeyedServer(engine);
      const file = join(await temporaryFolder('key'), 'key');
      await writeFile(file, `${server.admin.text}\n`);
      const as = (key: object) => (args: readonly string[]) =>
        runCommand(args, { LEASEHOLD_URL: server.http, ...key });
      const admin = as({ LEASEHOLD_API_KEY_FILE: file });
      expect((await as({})(['jobs', 'list'])).stderr).to.include('unauthenticated');
      const names = ['--addon', 'shop', '--type', '*', '--stream', 'films,gpu-*'];
      const created = await admin(['keys', 'create', '--name', 'w', '--role', 'worker', ...names, '--json']);
      expect(created.code, created.stderr).to.equal(0);
      const { key, text } = JSON.parse(created.stdout);
      expect(key.scopes).to.deep.equal({
        addon_ids: ['shop'],
        streams: ['films', 'gpu-*'],
        job_types: ['*'],
        repositories: [],
      });
      const worker = as({ LEASEHOLD_API_KEY: text });
      const checked = await eventually('the key counts', async () => {
        const answer = await worker(['keys', 'check']);
        return answer.code === 0 ? answer.stdout : undefined;
      });
      expect(checked).to.include('leases.work').and.to.include('gpu-*');
      expect((await worker(['keys'])).stderr).to.include('permission_denied');
      const rotated = await admin(['keys', 'rotate', key.key_id, '--overlap', '0h']);
      expect(rotated.stdout.trim()).to.match(/^lhk_/);
      await eventually('the old secret is over', async () => {
        const { code } = await worker(['keys', 'check']);
        return code === 1 || undefined;
      });
      expect((await admin(['keys', 'revoke', key.key_id])).stdout).to.include('revoked');
      expect((await admin(['keys', 'show', key.key_id])).stdout).to.match(/state +revoked/);
      const { stdout } = await admin(['audit', '--action', 'keys.rotate', '--json']);
      const { events } = JSON.parse(stdout);
      expect(events).to.have.length(1);
      expect(events[0]).to.include({ target: key.key_id, outcome: 'done' });
      expect(events[0].principal).to.include({ kind: 'key', name: 'first' });
      const listed = (await admin(['audit', '--since', '1h'])).stdout;
      expect(listed).to.match(/keys\.revoke +done/);
      expect(listed).to.include(`first key:${server.admin.keyId} `);
      expect((await admin(['audit', '--since', 'soon'])).code).to.equal(2);
    });
  });
});
