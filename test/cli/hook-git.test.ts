/** `leasehold hook git`, in real repositories: what a commit gives back, and what an installation leaves alone. */
import { chmod, lstat, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { filesOfCommit } from '../../src/gate/git.ts';
import { apiOf, FakeAgent, gitEnvironment, holders, isKept, Repository, take } from '../gate/support.ts';
import { temporaryFolder } from '../support/cleanup.ts';
import { onEveryEngine } from '../support/engines.ts';
import { runCommand, until } from '../support/process.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const nowhere = 'http://127.0.0.1:9';
const oddNames = ['with space', 'with\nnewline', 'ünï→cödé', '"quoted"', '-dash', 'tab\tbed', "it's", '*'];

const hookGit = (repository: { top: string }, verb: string, environment = {}) =>
  runCommand(['hook', 'git', verb], { ...gitEnvironment, ...environment }, { cwd: repository.top });

async function installed(): Promise<Repository> {
  const repository = await Repository.create();
  const { code, stderr } = await hookGit(repository, 'install');
  expect([code, stderr]).to.deep.equal([0, '']);
  return repository;
}

describe('the files of a commit', () => {
  it('are those of the first commit, whatever they are called', async () => {
    const repository = await Repository.create();
    await mkdir(join(repository.top, 'deep', 'er'), { recursive: true });
    const names = [...oddNames, 'deep/er/file'];
    for (const name of names) await repository.write(name);
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'first');
    expect((await filesOfCommit(repository.top)).sort()).to.deep.equal(names.sort());
    // Asked from anywhere in the repository, the paths are counted from its top.
    expect(await filesOfCommit(join(repository.top, 'deep'))).to.include('deep/er/file');
  });

  it('are both sides of a renamed one, removed ones, and none of an empty commit', async () => {
    const repository = await Repository.create();
    await repository.write('a', 'the same text\n'.repeat(50));
    await repository.write('b');
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'first');
    await repository.git('mv', 'a', 'c');
    await repository.git('rm', '--quiet', 'b');
    await repository.git('commit', '--quiet', '-m', 'second');
    expect(await filesOfCommit(repository.top)).to.deep.equal(['a', 'b', 'c']);
    await repository.git('commit', '--quiet', '--allow-empty', '-m', 'third');
    expect(await filesOfCommit(repository.top)).to.deep.equal([]);
  });

  it('are, of a merge, those that it has changed in what was checked out', async () => {
    const repository = await Repository.create();
    await repository.write('base', '1\n');
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'base');
    await repository.git('switch', '--quiet', '-c', 'side');
    await repository.write('base', '2\n');
    await repository.write('theirs');
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'side');
    await repository.git('switch', '--quiet', 'main');
    await repository.write('base', '3\n');
    await repository.write('ours');
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'main');
    await repository.git('merge', '--quiet', 'side').catch(() => {});
    await repository.write('base', '4\n');
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '--no-edit');
    expect(await filesOfCommit(repository.top)).to.deep.equal(['base', 'theirs']);
  });
});

describe('leasehold hook git install', () => {
  const hookOf = (repository: Repository) => join(repository.top, '.git', 'hooks', 'post-commit');

  it('writes a hook that can be executed, and the second time nothing', async () => {
    const repository = await installed();
    expect((await lstat(hookOf(repository))).mode & 0o111).to.equal(0o111);
    const before = await readFile(hookOf(repository), 'utf8');
    const { code, stdout } = await hookGit(repository, 'install');
    expect([code, stdout]).to.deep.equal([0, `${hookOf(repository)} is there already`]);
    expect(await readFile(hookOf(repository), 'utf8')).to.equal(before);
    expect(
      (await readdir(join(repository.top, '.git', 'hooks'))).filter((name) => !name.endsWith('.sample')),
    ).to.deep.equal(['post-commit']);
  });

  it('keeps the hook that is there, which runs first and has the last word; and uninstall puts it back', async () => {
    const repository = await Repository.create();
    const theirs = '#!/bin/sh\necho "theirs in $PWD"\nexit 3\n';
    await writeFile(hookOf(repository), theirs);
    await chmod(hookOf(repository), 0o755);
    const other = join(repository.top, '.git', 'hooks', 'pre-commit');
    await writeFile(other, '#!/bin/sh\necho before\n', { mode: 0o755 });
    expect((await hookGit(repository, 'install')).stdout).to.include('runs the hook that was there before');
    expect((await hookGit(repository, 'install')).stdout).to.include('is there already');
    await repository.write('a');
    await repository.git('add', '--all');
    const said = await repository.gitAs({ LEASEHOLD_URL: nowhere }, 'commit', '-m', 'x');
    expect(said).to.include(`theirs in ${repository.top}`).and.to.include('before');
    const { code } = await hookGit(repository, 'uninstall');
    expect([code, await readFile(hookOf(repository), 'utf8')]).to.deep.equal([0, theirs]);
    expect((await hookGit(repository, 'uninstall')).stdout).to.include('is no hook of Leasehold');
  });

  it('leaves a hook that was switched off switched off', async () => {
    const repository = await Repository.create();
    await writeFile(hookOf(repository), '#!/bin/sh\necho theirs\n', { mode: 0o644 });
    await hookGit(repository, 'install');
    await repository.write('a');
    await repository.git('add', '--all');
    expect(await repository.git('commit', '-m', 'x')).not.to.include('theirs');
  });

  it('keeps a hook that is a link, also one that leads nowhere', async () => {
    const repository = await Repository.create();
    await symlink('../../hooks/post-commit', hookOf(repository));
    await hookGit(repository, 'install');
    await hookGit(repository, 'uninstall');
    expect((await lstat(hookOf(repository))).isSymbolicLink()).to.equal(true);
  });

  it('does not choose between two hooks of others', async () => {
    const repository = await installed();
    await rename(hookOf(repository), `${hookOf(repository)}.before-leasehold`);
    await writeFile(hookOf(repository), '#!/bin/sh\n', { mode: 0o755 });
    const { code, stderr } = await hookGit(repository, 'install');
    expect(code).to.equal(1);
    expect(stderr).to.include('put them together first');
    expect(await readFile(hookOf(repository), 'utf8')).to.equal('#!/bin/sh\n');
  });

  it("leaves husky's hooks alone, which go by their names, and says where its line belongs", async () => {
    const repository = await Repository.create();
    const folder = join(repository.top, '.husky', '_');
    await mkdir(folder, { recursive: true });
    // As husky 9 writes them.
    await writeFile(join(folder, 'h'), 'sh -e "$(dirname "$(dirname "$0")")/$(basename "$0")" "$@"\n');
    const theirs = '#!/usr/bin/env sh\n. "$(dirname "$0")/h"';
    await writeFile(join(folder, 'post-commit'), theirs, { mode: 0o755 });
    await writeFile(join(repository.top, '.husky', 'post-commit'), 'echo theirs\n');
    await repository.git('config', 'core.hooksPath', '.husky/_');
    const { code, stderr } = await hookGit(repository, 'install');
    expect(code).to.equal(1);
    expect(stderr).to.match(/husky.* add this line to \S+\/\.husky\/post-commit: .* hook git post-commit$/);
    expect(await readFile(join(folder, 'post-commit'), 'utf8')).to.equal(theirs);
    expect(await repository.git('commit', '--allow-empty', '-m', 'x')).to.include('theirs');
  });

  it('goes where core.hooksPath says, also from a folder below, and serves every worktree', async () => {
    const repository = await Repository.create();
    await repository.git('config', 'core.hooksPath', 'my hooks');
    const below = join(repository.top, 'below');
    await mkdir(below);
    const { stdout } = await hookGit({ top: below }, 'install');
    expect(stdout).to.equal(`wrote ${join(repository.top, 'my hooks', 'post-commit')}`);

    const shared = await installed();
    await shared.git('commit', '--quiet', '--allow-empty', '-m', 'x');
    const tree = join(await temporaryFolder('worktree'), 'tree');
    await shared.git('worktree', 'add', '--quiet', tree);
    expect((await hookGit({ top: tree }, 'install')).stdout).to.equal(`${hookOf(shared)} is there already`);
  });

  it('says what is wrong outside a repository, and what it does not understand', async () => {
    const outside = { top: await temporaryFolder('outside') };
    for (const verb of ['install', 'uninstall']) {
      const { code, stderr } = await hookGit(outside, verb);
      expect(code, verb).to.equal(1);
      expect(stderr).to.match(/^leasehold: .*not a git repository/);
    }
    const { code, stderr } = await hookGit(outside, 'frobnicate');
    expect(code).to.equal(2);
    expect(stderr).to.include('frobnicate');
  });
});

onEveryEngine((engine) => {
  if (engine.name === 'postgresql') return;
  describe('leasehold hook git post-commit', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    /** Commits everything as somebody, and answers with what was said. */
    async function commit(repository: Repository, environment = {}, ...args: string[]): Promise<string> {
      await repository.git('add', '--all');
      return repository.gitAs(
        { LEASEHOLD_URL: server.http, ...environment },
        'commit',
        '--quiet',
        '-m',
        'x',
        ...args,
      );
    }

    it('gives back the files of the commit that its owner has, and no others, and says nothing', async () => {
      const repository = await installed();
      const names = [...oddNames, 'old', 'left'];
      await take(server, 'ann', repository.top, ...names, 'new', 'not in it');
      for (const name of names) await repository.write(name);
      expect(await commit(repository, { LEASEHOLD_OWNER: 'ann' })).to.equal('');
      expect(await holders(server, repository.top)).to.deep.equal({ new: 'ann', 'not in it': 'ann' });
      // Both sides of a rename.
      await take(server, 'ann', repository.top, 'old');
      await repository.git('mv', 'old', 'new');
      expect(await commit(repository, { LEASEHOLD_OWNER: 'ann' })).to.equal('');
      expect(await holders(server, repository.top)).to.deep.equal({ 'not in it': 'ann' });
    });

    it('reports files of others and leaves them theirs, and the author is who it was', async () => {
      const repository = await installed();
      await take(server, 'bob', repository.top, 'his');
      await take(server, 'cid', repository.top, 'hers');
      await repository.write('his');
      await repository.write('hers');
      const said = await commit(repository, { LEASEHOLD_OWNER: 'bob' });
      expect(said).to.equal('leasehold: hers was committed, and stays with cid (test)\n');
      expect(await holders(server, repository.top)).to.deep.equal({ hers: 'cid' });
      // Whoever is no owner commits as ever.
      await repository.write('hers');
      expect(await commit(repository)).to.equal(said);
      const people = await repository.git('log', '--format=%an %ae %cn %ce');
      expect(people).to.equal('Ann ann@example.org Ann ann@example.org\n'.repeat(2));
    });

    it('knows the agent that commits among its ancestors', async () => {
      const repository = await installed();
      await using agent = await FakeAgent.start(repository.top, { LEASEHOLD_URL: server.http });
      await using other = await FakeAgent.start(repository.top, { LEASEHOLD_URL: server.http });
      const writes = (path: string) => ({
        tool_name: 'Write',
        tool_input: { file_path: join(repository.top, path) },
      });
      await agent.hook('PreToolUse', writes('a'));
      await agent.hook('PreToolUse', { ...writes('sent'), agent_id: 'x' });
      await other.hook('PreToolUse', writes('b'));
      await until(
        'heartbeaters',
        () => isKept(agent.notes, agent.session) && isKept(other.notes, other.session),
      );
      for (const name of ['a', 'b', 'sent']) await repository.write(name);
      const { code, stderr } = await agent.run('git add --all && git commit --quiet -m x');
      expect(code).to.equal(0);
      expect(stderr).to.match(
        new RegExp(`^leasehold: b was committed, and stays with ${other.session} \\(claude-code, .*\\)\n$`),
      );
      expect(await holders(server, repository.top)).to.deep.equal({ b: other.session });
    });

    it('is not taken in by a process that has the pid of an agent', async () => {
      const repository = await installed();
      await using agent = await FakeAgent.start(repository.top, { LEASEHOLD_URL: server.http });
      const started = 'at another time';
      agent.notes.write({
        owner_id: 'ghost',
        url: server.http,
        agent: { pid: agent.pid, started, name: 'claude' },
        since: '',
      });
      await take(server, 'ghost', repository.top, 'a');
      await repository.write('a');
      const { stderr } = await agent.run('git add --all && git commit --quiet -m x');
      expect(stderr).to.include('a was committed, and stays with ghost');
      agent.notes.remove('ghost');
    });

    it('works in worktrees, whose files are files of their own', async () => {
      const repository = await installed();
      await commit(repository, {}, '--allow-empty');
      const tree = join(await temporaryFolder('worktree'), 'tree');
      await repository.git('worktree', 'add', '--quiet', tree);
      await take(server, 'ann', tree, 'a');
      await take(server, 'ann', repository.top, 'a');
      await writeFile(join(tree, 'a'), '');
      const environment = { LEASEHOLD_URL: server.http, LEASEHOLD_OWNER: 'ann' };
      await repository.gitAs(environment, '-C', tree, 'add', 'a');
      expect(await repository.gitAs(environment, '-C', tree, 'commit', '--quiet', '-m', 'x')).to.equal('');
      expect([await holders(server, tree), await holders(server, repository.top)]).to.deep.equal([
        {},
        { a: 'ann' },
      ]);
      await apiOf(server).end('ann');
    });

    it('says that no server answers, and the commit is made', async () => {
      const repository = await installed();
      await repository.write('a');
      const said = await commit(repository, { LEASEHOLD_URL: nowhere, LEASEHOLD_OWNER: 'ann' });
      expect(said).to.match(
        /^leasehold: could not give back what was committed: there is no server at [^\n]+\n$/,
      );
      expect(await repository.git('log', '--format=%s')).to.equal('x\n');
      // Whoever has nothing to give back is not bothered.
      await repository.write('a');
      expect(await commit(repository, { LEASEHOLD_URL: nowhere })).to.equal('');
    });
  });
});
