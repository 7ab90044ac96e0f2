/** `leasehold serve` as a program: the sources of its settings, and its output on each stream. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Exit, runCommand, startServer, until } from '../../support/process.ts';
import { createStore } from '../../support/server-clients.ts';

/** The log of a finished run; a line that is not JSON is an error. */
const logOf = ({ stderr }: Exit): Record<string, unknown>[] =>
  stderr === '' ? [] : stderr.split('\n').map((line) => JSON.parse(line));

describe('leasehold serve', () => {
  onEveryEngine((engine) => {
    it('accepts flags in both spellings, prefers them to variables, and logs in JSON', async () => {
      await using store = await createStore(engine);
      const bad = {
        LEASEHOLD_HTTP_ADDR: 'no address',
        LEASEHOLD_GRPC_ADDR: 'no address',
        LEASEHOLD_LOG: 'loud',
      };
      const flags = ['--http-addr', '127.0.0.1:0', '--leasehold-grpc-addr=127.0.0.1:0', '--log', 'info'];
      await using server = await startServer({ ...store.env, ...bad, LEASEHOLD_POOL_MAX: '' }, flags);
      const exit = await server.stop();
      expect(exit.code).to.equal(0);
      const lines = logOf(exit);
      for (const line of lines) expect(line).to.include.all.keys('ts', 'level', 'msg', 'pid', 'host');
      expect(lines.map(({ msg }) => msg)).to.deep.equal(['ready', 'stopping', 'stopped']);
    });

    it('prints only its ready line if logging is off', async () => {
      await using store = await createStore(engine);
      await using server = await startServer({ ...store.env, LEASEHOLD_LOG: 'silent' });
      const { code, stdout, stderr } = await server.stop();
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(/^leasehold ready: [^\n]+$/);
    });
  });

  it('stops once for several signals, as from Ctrl-C below npm, and finishes running calls', async () => {
    const folder = await temporaryFolder('serve');
    await using server = await startServer({ LEASEHOLD_DATA_DIR: join(folder, 'data') });
    server.signal('SIGINT');
    await until('a server that stops', () => server.log().some(({ msg }) => msg === 'stopping'));
    server.signal('SIGINT');
    const { code, signal } = await server.exited();
    expect({ code, signal }).to.deep.equal({ code: 0, signal: null });
    expect(server.log().at(-1)).to.include({ msg: 'stopped' });
  });

  it('logs at the configured level, and reports a failed start even if logging is off', async () => {
    const file = join(await temporaryFolder('serve'), 'file');
    await writeFile(file, '');
    const levels = ['debug', 'info', 'silent'];
    const exits = await Promise.all(
      levels.map((level) =>
        runCommand(['serve', '--data-dir', join(file, 'data')], { LEASEHOLD_LOG: level }),
      ),
    );
    for (const [i, { code, stdout, stderr }] of exits.entries()) {
      const [words, ...log] = stderr.split('\n');
      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(words)
        .to.match(/^leasehold: /)
        .and.to.include(file);
      const messages = log.map((line) => [JSON.parse(line).level, JSON.parse(line).msg]);
      expect(messages, levels[i]).to.deep.equal(i === 0 ? [['debug', 'could not start']] : []);
    }
  });
});
