/**
 * The guarantee: one command starts a server quickly. If it cannot start, it prints the reason in one line
 * and exits with 1. Of several servers that start on one PostgreSQL all serve; of several on one embedded
 * directory exactly one does.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { hostname } from 'node:os';
import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import { findPostgres } from '../support/postgres.ts';
import { type Exit, runCommand, startServer } from '../support/process.ts';
import { connect, createPostgresStore, createStore, emptyDirectory } from '../support/server-clients.ts';

/** A port that is in use until the scope ends. */
async function occupiedPort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { port, [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

async function freePort(): Promise<number> {
  await using occupied = await occupiedPort();
  return occupied.port;
}

const anywhere = { LEASEHOLD_HTTP_ADDR: '127.0.0.1:0', LEASEHOLD_GRPC_ADDR: '127.0.0.1:0' };

/** Expects exit status 1, no output, and one readable line on standard error. */
function expectOneLine({ code, stdout, stderr }: Exit): string {
  const words = stderr.split('\n').filter((line) => !line.startsWith('{'));
  expect({ code, stdout }, stderr).to.deep.equal({ code: 1, stdout: '' });
  expect(words, stderr).to.have.length(1);
  expect(words[0]).to.match(/^leasehold: /);
  return words[0] ?? '';
}

describe('a server that starts', () => {
  onEveryEngine((engine) => {
    it('prints both of its addresses with the free ports it chose, and serves on both', async () => {
      await using store = await createStore(engine);
      await using server = await startServer(store.env);
      expect(server.readyLine).to.match(
        /^leasehold ready: http:\/\/127\.0\.0\.1:\d+ \(.*\), grpc 127\.0\.0\.1:\d+, database: \S+/,
      );
      expect([server.http, server.grpc].join(' ')).to.not.match(/:0\b/);
      using client = connect(server);
      expect((await client.rest('GET', '/readyz')).status).to.equal(200);
      expect((await client.jobs.listJobs({})).jobs).to.deep.equal([]);
    });
  });
});

describe('a server that starts on an embedded directory', () => {
  it('refuses a directory that another process holds, and names the process and its start', async () => {
    const env = await emptyDirectory();
    const before = Date.now();
    await using holder = await startServer(env);
    const line = expectOneLine(await runCommand(['serve'], { ...anywhere, ...env }));
    expect(line).to.include(`process ${holder.pid} on ${hostname()} since `);
    const since = Date.parse(/since (\S+?)[;,.]? /.exec(line)?.[1] ?? '');
    expect(since, line).to.be.within(before, Date.now());
    using client = connect(holder);
    expect((await client.rest('GET', '/readyz')).status, 'the holder goes on').to.equal(200);
  });

  for (const variable of ['LEASEHOLD_HTTP_ADDR', 'LEASEHOLD_GRPC_ADDR']) {
    it(`names the occupied address of ${variable}, and exits with 1`, async () => {
      await using occupied = await occupiedPort();
      const address = `127.0.0.1:${occupied.port}`;
      const exit = await runCommand(['serve'], {
        ...anywhere,
        ...(await emptyDirectory()),
        [variable]: address,
      });
      expect(expectOneLine(exit)).to.include(`${address} (${variable})`);
    });
  }

  it('starts without repair after the previous holder was killed', async () => {
    const env = await emptyDirectory();
    const holder = await startServer(env);
    await holder.kill();
    await using next = await startServer(env);
    expect((await next.stop()).code).to.equal(0);
  });
});

if (findPostgres()) {
  describe('a server that starts on PostgreSQL', () => {
    it('shares an empty database with three other servers, and one of them migrates it', async () => {
      await using store = await createPostgresStore();
      const servers = await Promise.all(Array.from({ length: 4 }, () => startServer(store.env)));
      const migrated = servers.filter((server) =>
        server.log().some(({ msg }) => msg === 'the schema was brought up to date'),
      );
      expect(migrated).to.have.length(1);
      const names = await store.query('select name from leasehold_migrations');
      expect(names.split('\n')).to.deep.equal([...new Set(names.split('\n'))]);
      const exits = await Promise.all(servers.map((server) => server.stop()));
      expect(exits.map(({ code }) => code)).to.deep.equal([0, 0, 0, 0]);
    });

    it('reports an unreachable database without its password, and exits with 1', async () => {
      const port = await freePort();
      const url = `postgres://somebody:open-sesame@127.0.0.1:${port}/somewhere`;
      const exit = await runCommand(['serve'], {
        ...anywhere,
        DATABASE_URL: url,
        LEASEHOLD_DATABASE_WAIT_S: '0',
      });
      expect(expectOneLine(exit)).to.match(new RegExp(`DATABASE_URL .* 127\\.0\\.0\\.1:${port}$`));
      expect(exit.stderr + exit.stdout).to.not.include('open-sesame');
    });

    it('reports a missing database, and exits with 1', async () => {
      await using store = await createPostgresStore();
      const exit = await runCommand(['serve'], { ...anywhere, DATABASE_URL: `${store.url}_not` });
      expect(expectOneLine(exit)).to.match(new RegExp(`DATABASE_URL .*${store.name}_not`));
    });
  });
}
