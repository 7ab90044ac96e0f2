/** The directory in which `npm run leasehold` acts, with the real npm and a checkout of its own. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { gitEnvironment, Repository } from '../support/coding-agents.ts';
import { bareEnvironment } from '../support/process.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const node = `'${process.execPath}'`;
const nowhere = ['--url', 'http://127.0.0.1:9', '--on-unreachable', 'allow'];

/** A copy of this program in a repository of its own, which a faulty command may change. */
async function checkout(): Promise<Repository> {
  const repository = await Repository.create();
  for (const path of ['src', 'gen', 'package.json'])
    await cp(join(root, path), join(repository.top, path), { recursive: true });
  await symlink(join(root, 'node_modules'), join(repository.top, 'node_modules'));
  return repository;
}

/** The output of a program that runs in the given directory. */
async function printed(cwd: string, program: string, ...args: string[]): Promise<string> {
  const env = { ...bareEnvironment(), ...gitEnvironment };
  return (await promisify(execFile)(program, args, { cwd, env })).stdout;
}

const hookOf = ({ top }: Repository) => join(top, '.git', 'hooks', 'post-commit');

describe('npm run leasehold', () => {
  let leasehold: Repository;
  let user: Repository;
  before(async () => {
    leasehold = await checkout();
  });
  beforeEach(async () => {
    await rm(hookOf(leasehold), { force: true });
    user = await Repository.create();
  });

  const run = (cwd: string, ...args: string[]) =>
    printed(cwd, 'npm', '--prefix', leasehold.top, 'run', '--silent', 'leasehold', '--', ...args);
  const installed = () =>
    [user, leasehold].filter((repository) => existsSync(hookOf(repository))).map(({ top }) => top);

  it("installs hooks for git into the repository of the user's directory", async () => {
    await mkdir(join(user.top, 'deep'));
    await run(join(user.top, 'deep'), 'hook', 'git', 'install');
    expect(installed()).to.deep.equal([user.top]);
  });

  it("writes an agent's settings into the repository of the user's directory", async () => {
    await run(user.top, 'hook', 'install');
    const settings = await readFile(join(user.top, '.claude', 'settings.json'), 'utf8');
    expect(settings).to.include('hook claude-code');
    expect(existsSync(join(leasehold.top, '.claude'))).to.equal(false);
  });

  it("runs the command of a guard in the user's directory", async () => {
    expect((await run(user.top, 'guard', 'a', ...nowhere, '--', 'pwd')).trim()).to.equal(user.top);
  });

  it("uses the checkout if a guard's command has changed to it", async () => {
    const within = `cd '${leasehold.top}' && ${node} src/main.ts hook git install`;
    await run(user.top, 'guard', 'a', ...nowhere, '--', 'sh', '-c', within);
    expect(installed()).to.deep.equal([leasehold.top]);
  });

  it("uses the checkout if another package's script of the same name has changed to it", async () => {
    const scripts = { leasehold: `cd '${leasehold.top}' && ${node} src/main.ts hook git install` };
    await writeFile(join(user.top, 'package.json'), JSON.stringify({ name: 'app', scripts }));
    await printed(user.top, 'npm', 'run', '--silent', 'leasehold');
    expect(installed()).to.deep.equal([leasehold.top]);
  });

  it("uses the directory of another package's script that calls it", async () => {
    const { top } = await Repository.create();
    const main = join(leasehold.top, 'src', 'main.ts');
    const scripts = { leasehold: `cd '${top}' && ${node} '${main}' hook git install` };
    await writeFile(join(user.top, 'package.json'), JSON.stringify({ name: 'app', scripts }));
    await printed(user.top, 'npm', 'run', '--silent', 'leasehold');
    expect(installed()).to.deep.equal([]);
  });
});
