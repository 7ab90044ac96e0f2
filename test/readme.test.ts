/** The README's settings are those of the code, and its commands work as they are pasted. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { flagOf, settings } from '../src/config.ts';
import { type Body, get } from './contracts/queue.ts';
import { temporaryFolder } from './support/cleanup.ts';
import { onEveryEngine } from './support/engines.ts';
import { describeWith, findProgram } from './support/programs.ts';
import { startTestServer, type TestServer } from './support/server.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const readme = readFileSync(join(root, 'README.md'), 'utf8');

const blocksIn = (language: string): string[] =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map(([, code = '']) => code);

/** Those that start a server; the tests have one. */
const startsServer = /^(npm ci|DATABASE_URL=)/;

describe('the README', () => {
  it('lists every setting with its flag, its default and what it is for', () => {
    for (const { variable, about, default: value, ...more } of Object.values(settings)) {
      const shown = 'defaultText' in more ? more.defaultText : value;
      expect(readme).to.include(`| \`${variable}\` | \`--${flagOf(variable)}\` | ${shown} | ${about} |`);
    }
  });

  it('has no comment in a block to be pasted, which zsh takes for a command (A2)', () => {
    const blocks = blocksIn('sh');
    expect(blocks.length).to.be.above(10);
    for (const block of blocks) expect(block).not.to.match(/(^|\s)#/m);
  });

  it('links to sections that are there', () => {
    const anchors = [...readme.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) =>
      title
        .toLowerCase()
        .replace(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    );
    for (const [, anchor] of readme.matchAll(/\]\(#([^)]*)\)/g)) expect(anchors).to.include(anchor);
  });
});

onEveryEngine((engine) => {
  if (engine.name !== 'embedded') return;
  describe('the commands of the README', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const atServer = (code: string) =>
      code.replaceAll('http://127.0.0.1:8080', server.http).replaceAll('127.0.0.1:50051', server.grpc);

    /** Runs a program in the checkout, with nothing of this environment but where programs are. */
    async function run(program: string, args: readonly string[], input: string) {
      const env = {
        PATH: process.env.PATH ?? '',
        HOME: await temporaryFolder('home'),
        LEASEHOLD_URL: server.http,
        PS1: '',
        PS2: '',
      };
      const child = spawn(program, args, { cwd: root, env });
      child.stdin.end(input);
      const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
      const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
      return { stdout, stderr, code };
    }

    const jobsOf = async (addonId: string): Promise<Body[]> =>
      (await get(server, `/api/scheduler/jobs?addon_id=${addonId}`)).body.jobs;

    /** Pastes all blocks into an interactive shell, as a reader does who takes the whole tour. */
    async function paste(shell: string, args: readonly string[]): Promise<void> {
      const before = { default: await jobsOf('default'), visuals: await jobsOf('visuals') };
      const blocks = blocksIn('sh').filter((block) => !startsServer.test(block));
      const { stdout, stderr, code } = await run(shell, args, `${atServer(blocks.join('\n'))}\nexit\n`);
      const said = `${stdout}\n${stderr}`;
      expect(code, said).to.equal(0);
      expect(said).not.to.match(/not found|parse error|syntax error|unexpected|quote>|no matches|curl:/);
      const answers = stdout.split('\n').filter((line) => line.startsWith('{"'));
      expect(answers.length, said).to.be.above(8);
      for (const line of answers) expect(JSON.parse(line), line).not.to.have.property('code');
      expect(stdout)
        .to.match(/^completed$/m)
        .and.to.match(/^PREPARING$/m)
        .and.to.match(/^SUCCEEDED$/m);
      expect(stdout).to.include('leasehold.v1.LeasesService/StreamWork').and.to.include('"grants"');
      for (const addonId of ['default', 'visuals'] as const) {
        const known = before[addonId].map(({ job_id }) => job_id);
        const made = (await jobsOf(addonId)).filter(({ job_id }) => !known.includes(job_id));
        const done = made
          .filter(({ job_type }) => job_type === 'resize' || job_type === 'render_image')
          .map(({ state }) => state);
        expect(done, addonId).to.deep.equal(['DONE']);
      }
    }

    it('can be pasted into bash, and a second time (A2)', async function () {
      this.timeout(240_000);
      for (const _ of ['first', 'second']) await paste('bash', ['--norc', '--noprofile', '-i']);
    });

    describeWith('zsh', 'the tour in zsh', () => {
      it('can be pasted into an interactive zsh with its own defaults, and a second time (A2)', async function () {
        this.timeout(240_000);
        for (const _ of ['first', 'second'])
          await paste(findProgram('zsh') ?? '', ['-f', '-i', '+o', 'prompt_sp']);
      });
    });

    it('include a worker in JavaScript that runs as it is written', async function () {
      this.timeout(30_000);
      const [sample = ''] = blocksIn('js');
      const file = join(await temporaryFolder('sample'), 'worker.mjs');
      const client = join(root, 'src/worker/client.ts');
      await writeFile(file, atServer(sample).replace("'leasehold'", JSON.stringify(client)));
      const { stdout, stderr, code } = await run(process.execPath, [file], '');
      expect([code, stderr]).to.deep.equal([0, '']);
      expect(stdout).to.match(/finished .*a cat.* under fence/);
    });
  });
});
