/** `leasehold migrate` updates a database, any number of times, also while other processes do the same. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { findPostgres } from '../../support/postgres.ts';
import { runCommand, startServer } from '../../support/process.ts';
import { connect, createPostgresStore, createStore } from '../../support/server-clients.ts';

const upToDate = 'the schema is up to date';

describe('leasehold migrate', () => {
  onEveryEngine((engine) => {
    it('migrates an empty database, and reports a current one as such', async () => {
      await using store = await createStore(engine, { empty: true });
      const first = await runCommand(['migrate'], store.env);
      expect({ code: first.code, stderr: first.stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(first.stdout).to.match(/^applied \d{4}-[a-z-]+(, \d{4}-[a-z-]+)*$/);
      const second = await runCommand(['migrate'], store.env);
      expect(second).to.include({ code: 0, stdout: upToDate, stderr: '' });
      await using server = await startServer(store.env);
      expect(server.log().map(({ msg }) => msg)).to.deep.equal(['ready']);
    });
  });

  it('refuses an embedded directory that is in use or unusable, and exits with 1', async () => {
    const folder = await temporaryFolder('migrate');
    const file = join(folder, 'file');
    await writeFile(file, '');
    const unusable = await runCommand(['migrate', '--data-dir', join(file, 'data')]);
    expect({ code: unusable.code, stdout: unusable.stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(unusable.stderr)
      .to.match(/^leasehold: .*LEASEHOLD_DATA_DIR.*$/)
      .and.to.include(file);
    const env = { LEASEHOLD_DATA_DIR: join(folder, 'data') };
    await using server = await startServer(env);
    const held = await runCommand(['migrate'], env);
    expect({ code: held.code, stdout: held.stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(held.stderr).to.match(new RegExp(`^leasehold: .*process ${server.pid} on .*$`));
  });
});

if (findPostgres()) {
  describe('leasehold migrate on PostgreSQL', () => {
    it('migrates once for several simultaneous runs and a starting server, and all succeed', async () => {
      await using store = await createPostgresStore();
      const started = startServer(store.env);
      const exits = await Promise.all(Array.from({ length: 3 }, () => runCommand(['migrate'], store.env)));
      await using server = await started;
      expect(exits.map(({ code, stderr }) => ({ code, stderr }))).to.deep.equal(
        exits.map(() => ({ code: 0, stderr: '' })),
      );
      const applied = exits.filter(({ stdout }) => stdout.startsWith('applied ')).length;
      const byServer = server.log().filter(({ msg }) => msg === 'the schema was brought up to date').length;
      expect(applied + byServer).to.equal(1);
      using client = connect(server);
      expect((await client.rest('GET', '/api/scheduler/jobs')).body.jobs).to.deep.equal([]);
    });

    it('reports an unreachable database in one line without its password', async () => {
      const url = 'postgres://me:open-sesame@127.0.0.1:1/db';
      const { code, stdout, stderr } = await runCommand(['migrate', '--database-url', url]);
      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.match(/^leasehold: .*127\.0\.0\.1:1.*$/);
      expect(stderr).to.not.include('sesame');
    });
  });
}
