import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { temporaryFolder } from './cleanup.ts';
import { findPostgres } from './postgres.ts';
import { notRunIn } from './report-lines.ts';

const root = join(import.meta.dirname, '../..');
const support = JSON.stringify(import.meta.dirname);

interface Outcome {
  code: number | null;
  output: string;
  lastLine: string | undefined;
}

/** A mocha of its own, with this repository's hooks and reporter, on a test file with this text. */
async function startMocha(text: string, env: Record<string, string> = {}): Promise<ChildProcess> {
  const file = join(await temporaryFolder('mocha'), 'scratch.test.ts');
  await writeFile(file, text);
  return spawn(process.execPath, ['node_modules/mocha/bin/mocha.js', file], {
    cwd: root,
    env: { ...process.env, LEASEHOLD_TEST_REQUIRE: '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 20_000,
    killSignal: 'SIGKILL',
  });
}

async function runMocha(text: string, env: Record<string, string> = {}): Promise<Outcome> {
  const mocha = await startMocha(text, env);
  const chunks: { stdout: string; all: string } = { stdout: '', all: '' };
  mocha.stdout?.on('data', (chunk) => {
    chunks.stdout += chunk;
    chunks.all += chunk;
  });
  mocha.stderr?.on('data', (chunk) => {
    chunks.all += chunk;
  });
  const [code] = await once(mocha, 'close');
  return { code, output: chunks.all, lastLine: chunks.stdout.trimEnd().split('\n').at(-1) };
}

describe('a test run', () => {
  it('that leaves nothing behind passes, and ends with the count', async () => {
    const { code, lastLine } = await runMocha(`it('a', () => {}); it('b', () => {});`);
    expect({ code, lastLine }).to.deep.equal({ code: 0, lastLine: '2 passed, 0 failed' });
  });

  it('shows a failure in full and counts it', async () => {
    const { code, output, lastLine } = await runMocha(
      `describe('sums', () => it('add up', () => { throw new Error('they do not'); }));`,
    );
    expect({ code, lastLine }).to.deep.equal({ code: 1, lastLine: '0 passed, 1 failed' });
    expect(output)
      .to.match(/sums\s+add up/)
      .and.to.include('they do not')
      .and.to.include('scratch.test.ts:1');
  });

  it('fails on a forgotten timer instead of hanging', async () => {
    const { code, output, lastLine } = await runMocha(`it('a', () => { setInterval(() => {}, 1000); });`);
    expect({ code, lastLine }).to.deep.equal({ code: 1, lastLine: '1 passed, 1 failed' });
    expect(output).to.include('1 × Timeout');
  });

  it('fails on a forgotten server and a forgotten process, and says which', async () => {
    const { code, output, lastLine } = await runMocha(`
      import { createServer } from 'node:net';
      import { spawn } from 'node:child_process';
      it('a', (done) => { createServer().listen(0, '127.0.0.1', done); });
      it('b', () => { spawn('sleep', ['8']); });
    `);
    expect({ code, lastLine }).to.deep.equal({ code: 1, lastLine: '2 passed, 1 failed' });
    expect(output)
      .to.match(/server listening on .*127\.0\.0\.1/)
      .and.to.match(/process \d+: sleep 8/);
  });

  it('says where a forgotten timer was made when asked to trace', async () => {
    const trace = { LEASEHOLD_TEST_TRACE: '1' };
    const { output } = await runMocha(`it('a', () => { setInterval(() => {}, 1000); });`, trace);
    expect(output).to.match(/Timeout made\n.*scratch\.test\.ts:1/);
  });

  it('fails on a rejection that nobody handles, and goes on to the next test', async () => {
    const { code, output, lastLine } = await runMocha(`
      it('a', async () => { Promise.reject(new Error('left alone')); await new Promise(setImmediate); });
      it('b', () => {});
    `);
    expect({ code, lastLine }).to.deep.equal({ code: 1, lastLine: '2 passed, 1 failed' });
    expect(output).to.include("'a'").and.to.include('left alone');
  });

  it('cannot be ended by a test as if it had passed', async () => {
    const { code, lastLine } = await runMocha(`it('a', () => {}); it('b', () => process.exit(0));`);
    expect({ code, lastLine }).to.deep.equal({ code: 1, lastLine: '1 passed, 1 failed' });
  });

  it('does not begin without what it is required to have', async () => {
    const { code, output } = await runMocha(`it('a', () => {});`, {
      LEASEHOLD_TEST_REQUIRE: 'redis',
      PATH: '/nowhere',
    });
    expect(code).to.equal(1);
    expect(output).to.include("LEASEHOLD_TEST_REQUIRE names 'redis', and there is none on this machine");
  });

  it('names the tests of a missing program in one line, and fails where the program is required', async () => {
    const text = `
      const { describeWith } = await import(${support} + '/programs.ts');
      describeWith('zsh', 'the tour in zsh', () => it('a', () => {}));
      describeWith('chromium', 'the docs page', () => it('b', () => {}));
      it('c', () => {});
    `;
    const left = await runMocha(text, { PATH: '/nowhere' });
    expect({ code: left.code, lastLine: left.lastLine }).to.deep.equal({
      code: 0,
      lastLine: '1 passed, 0 failed',
    });
    expect(left.output).to.include('\nnot run: zsh (the tour in zsh); chromium (the docs page)\n');
    const required = await runMocha(text, { PATH: '/nowhere', LEASEHOLD_TEST_REQUIRE: 'zsh,chromium' });
    expect(required.code).to.equal(1);
  });

  it('adds up the lines of several runs', () => {
    const line = 'not run: zsh (a, b); java (c)';
    expect(notRunIn([`x\n${line}\n`, 'nothing\n', 'not run: zsh (b (d))\n'])).to.equal(
      'not run: zsh (a, b, b (d)); java (c)',
    );
    expect(notRunIn(['1 passed, 0 failed\n'])).to.equal(undefined);
  });
});

async function eventually(isTrue: () => boolean): Promise<boolean> {
  for (let tries = 0; tries < 200; tries++) {
    if (isTrue()) return true;
    await delay(50);
  }
  return false;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

if (findPostgres()) {
  describe('the PostgreSQL of a test run', () => {
    const text = `
      import { sharedPostgres } from ${support.replace(/"$/, '/postgres.ts"')};
      it('a', async () => {
        const cluster = await sharedPostgres();
        process.stdout.write(JSON.stringify({ pid: cluster.pid, folder: cluster.socketFolder }) + '\\n');
        if (process.env.CRASH) setTimeout(() => { process.exit(3); });
        await new Promise((resolve) => setTimeout(resolve, 20_000));
      });
    `;

    async function whenRunning(mocha: ChildProcess): Promise<{ pid: number; folder: string }> {
      let output = '';
      for await (const chunk of mocha.stdout ?? []) {
        output += chunk;
        const told = /^\{.*\}$/m.exec(output);
        if (told) return JSON.parse(told[0]);
      }
      throw new Error(`the run ended early: ${output}`);
    }

    async function expectNothingLeft({ pid, folder }: { pid: number; folder: string }): Promise<void> {
      expect(await eventually(() => !isAlive(pid) && !existsSync(folder))).to.equal(true);
    }

    for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL'] as const) {
      it(`is gone after ${signal}`, async () => {
        const mocha = await startMocha(text);
        const running = await whenRunning(mocha);
        mocha.kill(signal);
        await expectNothingLeft(running);
      });
    }

    it('is gone after the process of the tests went away in the middle', async () => {
      const mocha = await startMocha(text, { CRASH: '1' });
      await expectNothingLeft(await whenRunning(mocha));
    });
  });
}
