import { mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { Repository } from '../../support/coding-agents.ts';
import { main, runCommand, startProcess } from '../../support/process.ts';

describe('leasehold hook install', () => {
  let repository: Repository;
  let file: string;
  beforeEach(async () => {
    repository = await Repository.create();
    file = join(repository.top, '.claude', 'settings.json');
  });

  const run = (args: string[], environment = {}, cwd = repository.top) =>
    runCommand(['hook', ...args], environment, { cwd });
  const settings = async () => JSON.parse(await readFile(file, 'utf8'));
  async function has(text: string): Promise<void> {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
  }

  it('writes the hooks, prints the difference, and changes nothing the second time', async () => {
    const first = await run(['install'], {}, repository.top);
    expect([first.code, first.stderr]).to.deep.equal([0, '']);
    expect(first.stdout)
      .to.match(new RegExp(`^${file}\n\\+ {`))
      .and.to.match(/^\+ +"timeout": 240$/m);
    const [group] = (await settings()).hooks.PreToolUse;
    // The program is not on the PATH, so the hook calls it by its path.
    expect(group.hooks[0].command).to.equal(`${process.execPath} ${main} hook claude-code`);
    const written = await readFile(file, 'utf8');
    const second = await run(['install', '--agent', 'claude-code', '--project']);
    expect(second.stdout).to.equal(`${file} is as it should be; nothing to change`);
    expect(await readFile(file, 'utf8')).to.equal(written);
  });

  it('writes the hooks also if its output is closed', async () => {
    const started = await startProcess(['hook', 'install'], {}, { cwd: repository.top });
    started.hangUp();
    const { code, signal, stderr } = await started.exited();
    expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    expect((await settings()).hooks).to.include.keys('PreToolUse', 'SessionEnd');
  });

  it('calls the program by its name if that is on the PATH', async () => {
    const bin = await temporaryFolder('bin');
    await writeFile(join(bin, 'leasehold'), '', { mode: 0o755 });
    await run(['install', '--on-unreachable', 'deny'], { PATH: `${bin}:${process.env.PATH}` });
    const [group] = (await settings()).hooks.Stop;
    expect(group.hooks[0].command).to.equal('leasehold hook claude-code --on-unreachable deny');
  });

  it('keeps existing settings, mode and link of the file, and uninstalls only its own hooks', async () => {
    const theirs = { model: 'x', hooks: { Stop: [{ hooks: [{ type: 'command', command: 'say done' }] }] } };
    const elsewhere = join(await temporaryFolder('dotfiles'), 'claude.json');
    await writeFile(elsewhere, `${JSON.stringify(theirs, null, 4)}\n`, { mode: 0o600 });
    await mkdir(dirname(file));
    await symlink(elsewhere, file);
    const { stdout } = await run(['install']);
    expect(stdout).not.to.match(/^- .*say done/m);
    const after = await settings();
    expect([after.model, after.hooks.Stop.length]).to.deep.equal(['x', 2]);
    expect((await stat(elsewhere)).mode & 0o777).to.equal(0o600);
    expect(await readFile(elsewhere, 'utf8')).to.include('\n    "model"');
    expect((await run(['uninstall'])).code).to.equal(0);
    expect(await settings()).to.deep.equal(theirs);
    expect((await run(['uninstall'])).stdout).to.include('nothing to change');
  });

  it('prints only the difference in a dry run', async () => {
    const { code, stdout } = await run(['install', '--dry-run']);
    expect([code, stdout.split('\n').at(-1)]).to.deep.equal([0, 'nothing was changed']);
    expect(await stat(file).catch(() => 'not there')).to.equal('not there');
  });

  it("writes to the home directory for a user, and to the repository's top for a project", async () => {
    const home = await temporaryFolder('home');
    await run(['install', '--user'], { HOME: home });
    expect(await readFile(join(home, '.claude', 'settings.json'), 'utf8')).to.include('PreToolUse');
    const below = join(repository.top, 'a', 'b');
    await mkdir(below, { recursive: true });
    await run(['install'], {}, below);
    expect(Object.keys(await settings())).to.deep.equal(['hooks']);
  });

  it('leaves a file that is no JSON unchanged, and reports it', async () => {
    for (const text of ['{ "a": 1, // why\n}', '[]', '{"hooks": 7}']) {
      await has(text);
      for (const verb of ['install', 'uninstall']) {
        const { code, stdout, stderr } = await run([verb]);
        expect([code, stdout], text).to.deep.equal([1, '']);
        expect(stderr)
          .to.match(/^leasehold: .*it is left as it is$/)
          .and.to.include(file);
        expect(await readFile(file, 'utf8')).to.equal(text);
      }
    }
  });

  it('prints a usage error, and exits with 2', async () => {
    for (const [args, says] of [
      [['install', 'x'], '"x"'],
      [['install', '--agent', 'hal'], '"hal"'],
      [['install', '--project', '--user'], 'either'],
      [['install', '--on-unreachable', 'x'], '--on-unreachable'],
      [['frobnicate'], '"frobnicate"'],
      [[], 'names no hook'],
    ] as const) {
      const { code, stdout, stderr } = await run([...args]);
      expect([code, stdout], stderr).to.deep.equal([2, '']);
      expect(stderr).to.include(says).and.to.include('leasehold hook --help');
    }
  });
});
