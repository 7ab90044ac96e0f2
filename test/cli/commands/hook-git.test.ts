/** `leasehold hook git`, in real repositories: what a commit releases, and what an installation keeps. */
import { chmod, lstat, mkdir, readdir, readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { committedSince, filesOfCommit, filesOfCommits } from '../../../src/agent/git.ts';
import { temporaryFolder } from '../../support/cleanup.ts';
import {
  apiOf,
  FakeAgent,
  gitEnvironment,
  holders,
  isKept,
  Repository,
  take,
} from '../../support/coding-agents.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { runCommand, until } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

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
  it('lists the files of the first commit, whatever their names', async () => {
    const repository = await Repository.create();
    await mkdir(join(repository.top, 'deep', 'er'), { recursive: true });
    const names = [...oddNames, 'deep/er/file'];
    for (const name of names) await repository.write(name);
    await repository.git('add', '--all');
    await repository.git('commit', '--quiet', '-m', 'first');
    expect((await filesOfCommit(repository.top)).sort()).to.deep.equal(names.sort());
    // Paths start at the top of the repository, from any directory in it.
    expect(await filesOfCommit(join(repository.top, 'deep'))).to.include('deep/er/file');
  });

  it('lists both sides of a rename and removed files, and none for an empty commit', async () => {
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

  it('lists the files that a merge has changed in the checkout', async () => {
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

  it('lists the same files if git is configured to show signatures (B3, S1)', async () => {
    const repository = await Repository.create();
    const program = join(repository.top, '.git', 'signer');
    // Git needs a program that signs and verifies. This one has the expected form, and accepts everything.
    const lines = [
      '#!/bin/sh',
      'cat >/dev/null',
      'case "$*" in',
      '*--verify*) echo "gpg: Good signature" >&2; echo "[GNUPG:] GOODSIG 1 ann";;',
      '*) printf "%s\\n" "-----BEGIN PGP SIGNATURE-----" "" x "-----END PGP SIGNATURE-----"',
      '  echo "[GNUPG:] SIG_CREATED D 1 1 00 1 1" >&2;;',
      'esac',
    ];
    await writeFile(program, `${lines.join('\n')}\n`, { mode: 0o755 });
    await repository.git('config', 'gpg.program', program);
    await repository.git('config', 'log.showSignature', 'true');
    for (const name of ['a', 'b']) {
      await repository.write(name);
      await repository.git('add', '--all');
      await repository.git('commit', '--quiet', '--gpg-sign', '-m', name);
    }
    expect(await repository.git('log', '--format=')).to.include('Good signature');
    expect(await filesOfCommits(repository.top, ['HEAD', 'HEAD~1'])).to.have.members(['a', 'b']);
    const committed = await committedSince(repository.top, 0);
    expect([...committed.keys()]).to.have.members(['a', 'b']);
    for (const seconds of committed.values()) expect(seconds).to.be.above(0);
  });
});

describe('leasehold hook git install', () => {
  const hookOf = (repository: Repository, name = 'post-commit') =>
    join(repository.top, '.git', 'hooks', name);
  const names = ['post-commit', 'post-merge', 'post-rewrite'];

  it('writes executable hooks, and changes nothing the second time', async () => {
    const repository = await installed();
    for (const name of names)
      expect((await lstat(hookOf(repository, name))).mode & 0o111, name).to.equal(0o111);
    const before = await readFile(hookOf(repository), 'utf8');
    const { code, stdout } = await hookGit(repository, 'install');
    const already = names.map((name) => `${hookOf(repository, name)} is there already`).join('\n');
    expect([code, stdout]).to.deep.equal([0, already]);
    expect(await readFile(hookOf(repository), 'utf8')).to.equal(before);
    expect(
      (await readdir(join(repository.top, '.git', 'hooks'))).filter((name) => !name.endsWith('.sample')),
    ).to.deep.equal(names);
  });

  it('replaces a hook of an earlier version, and adds the others (B3, S1)', async () => {
    const repository = await Repository.create();
    const { stdout: help } = await hookGit(repository, 'install');
    expect(help).to.include(`wrote ${hookOf(repository)}`);
    const now = await readFile(hookOf(repository), 'utf8');
    await hookGit(repository, 'uninstall');
    expect(
      (await readdir(join(repository.top, '.git', 'hooks'))).filter((name) => names.includes(name)),
    ).to.deep.equal([]);
    await writeFile(hookOf(repository), now.replace(/^commit=.*\n/m, '').replace(' "$commit"', ''), {
      mode: 0o755,
    });
    const { code, stdout } = await hookGit(repository, 'install');
    expect(code).to.equal(0);
    expect(stdout.split('\n')).to.deep.equal([
      `wrote ${hookOf(repository)} anew; it was of another version or place`,
      `wrote ${hookOf(repository, 'post-merge')}`,
      `wrote ${hookOf(repository, 'post-rewrite')}`,
    ]);
    expect(await readFile(hookOf(repository), 'utf8')).to.equal(now);
  });

  it('passes a rewrite on to the earlier hook as well (S1)', async () => {
    const repository = await Repository.create();
    const theirs = '#!/bin/sh\necho "theirs $1"; cat\n';
    await writeFile(hookOf(repository, 'post-rewrite'), theirs, { mode: 0o755 });
    await hookGit(repository, 'install');
    await repository.git('commit', '--quiet', '--allow-empty', '-m', 'x');
    const before = (await repository.git('rev-parse', 'HEAD')).trim();
    const said = await repository.gitAs(
      { LEASEHOLD_URL: nowhere },
      'commit',
      '--quiet',
      '--amend',
      '--allow-empty',
      '-m',
      'y',
    );
    const after = (await repository.git('rev-parse', 'HEAD')).trim();
    expect(said).to.include(`theirs amend\n${before} ${after}\n`);
  });

  it('runs an existing hook first, keeps its exit status, and restores it on uninstall', async () => {
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

  it('leaves a disabled hook disabled', async () => {
    const repository = await Repository.create();
    await writeFile(hookOf(repository), '#!/bin/sh\necho theirs\n', { mode: 0o644 });
    await hookGit(repository, 'install');
    await repository.write('a');
    await repository.git('add', '--all');
    expect(await repository.git('commit', '-m', 'x')).not.to.include('theirs');
  });

  it('keeps a hook that is a link, also a dangling one', async () => {
    const repository = await Repository.create();
    await symlink('../../hooks/post-commit', hookOf(repository));
    await hookGit(repository, 'install');
    await hookGit(repository, 'uninstall');
    expect((await lstat(hookOf(repository))).isSymbolicLink()).to.equal(true);
  });

  it('does not choose between two hooks of other tools', async () => {
    const repository = await installed();
    await rename(hookOf(repository), `${hookOf(repository)}.before-leasehold`);
    await writeFile(hookOf(repository), '#!/bin/sh\n', { mode: 0o755 });
    const { code, stderr } = await hookGit(repository, 'install');
    expect(code).to.equal(1);
    expect(stderr).to.include('put them together first');
    expect(await readFile(hookOf(repository), 'utf8')).to.equal('#!/bin/sh\n');
  });

  it("leaves husky's hooks alone, and names the file that its line belongs to", async () => {
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
    expect(stderr).to.match(/husky.* add these lines\n/);
    for (const name of names)
      expect(stderr).to.match(new RegExp(`/\\.husky/${name}:\\n.*\\n.* hook git ${name}`));
    expect(await readFile(join(folder, 'post-commit'), 'utf8')).to.equal(theirs);
    expect(await repository.git('commit', '--allow-empty', '-m', 'x')).to.include('theirs');
  });

  it('installs hooks at core.hooksPath, also from a subfolder, for every worktree', async () => {
    const repository = await Repository.create();
    await repository.git('config', 'core.hooksPath', 'my hooks');
    const below = join(repository.top, 'below');
    await mkdir(below);
    const { stdout } = await hookGit({ top: below }, 'install');
    const wrote = names.map((name) => `wrote ${join(repository.top, 'my hooks', name)}`).join('\n');
    expect(stdout).to.equal(wrote);

    const shared = await installed();
    await shared.git('commit', '--quiet', '--allow-empty', '-m', 'x');
    const tree = join(await temporaryFolder('worktree'), 'tree');
    await shared.git('worktree', 'add', '--quiet', tree);
    expect((await hookGit({ top: tree }, 'install')).stdout).to.include(`${hookOf(shared)} is there already`);
  });

  it('reports a missing repository and usage errors', async () => {
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

    /** Commits everything as the given owner, and returns the output. */
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

    it('releases only the committed files that the owner holds, and prints nothing', async () => {
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

    it('reports files of other owners, keeps their leases, and leaves the author unchanged', async () => {
      const repository = await installed();
      await take(server, 'bob', repository.top, 'his');
      await take(server, 'cid', repository.top, 'hers');
      await repository.write('his');
      await repository.write('hers');
      const said = await commit(repository, { LEASEHOLD_OWNER: 'bob' });
      expect(said).to.equal('leasehold: hers was committed, and stays with cid (test)\n');
      expect(await holders(server, repository.top)).to.deep.equal({ hers: 'cid' });
      // A committer that is no owner commits as usual.
      await repository.write('hers');
      expect(await commit(repository)).to.equal(said);
      const people = await repository.git('log', '--format=%an %ae %cn %ce');
      expect(people).to.equal('Ann ann@example.org Ann ann@example.org\n'.repeat(2));
    });

    it('finds the committing agent among its ancestors', async () => {
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

    it('rejects a process that reuses the pid of an agent', async () => {
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

    it('releases files of worktrees by keys of their own', async () => {
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

    it('releases the files of each of two commits in quick succession (B3)', async function () {
      this.timeout(60_000);
      const repository = await installed();
      await commit(repository, {}, '--allow-empty');
      for (const gapMs of [0, 5, 20, 50, 100]) {
        const [ann, bob] = [`ann-${gapMs}`, `bob-${gapMs}`];
        await take(server, ann, repository.top, ann);
        await take(server, bob, repository.top, bob);
        await repository.write(ann);
        await repository.write(bob);
        await repository.git('add', '--all');
        const commitOf = (owner: string) => {
          const environment = { LEASEHOLD_URL: server.http, LEASEHOLD_OWNER: owner };
          return repository.gitAs(environment, 'commit', '--quiet', '-m', owner, '--', owner);
        };
        // The second commit runs during the first one's hook, or waits for the index lock and is repeated.
        const first = commitOf(ann);
        await new Promise((resolve) => setTimeout(resolve, gapMs));
        const second = (async () => {
          for (let attempt = 0; ; attempt++) {
            try {
              return await commitOf(bob);
            } catch (error) {
              if (attempt > 100 || !/index\.lock|HEAD\.lock|cannot lock ref/.test(String(error))) throw error;
            }
          }
        })();
        const said = await Promise.all([first, second]);
        expect(said.join(''), `with ${gapMs} ms`).to.match(/^(.* committed, and stays with .*\n)*$/);
        expect(await holders(server, repository.top), `with ${gapMs} ms between them`).to.deep.equal({});
        for (const owner of [ann, bob]) await apiOf(server).end(owner);
      }
    });

    it('releases the files of an earlier commit also if its hook runs late (B3)', async () => {
      const repository = await installed();
      await commit(repository, {}, '--allow-empty');
      await take(server, 'ann', repository.top, 'a', 'dirty', 'not yet');
      await take(server, 'bob', repository.top, 'b');
      for (const name of ['a', 'dirty', 'b']) await repository.write(name);
      const noHook = ['-c', 'core.hooksPath=/dev/null'];
      await repository.git('add', '--all');
      await repository.git(...noHook, 'commit', '--quiet', '-m', 'a', '--', 'a', 'dirty');
      await repository.git(...noHook, 'commit', '--quiet', '-m', 'b');
      await repository.write('dirty');
      const late = await runCommand(
        ['hook', 'git', 'post-commit'],
        { ...gitEnvironment, LEASEHOLD_URL: server.http, LEASEHOLD_OWNER: 'ann' },
        { cwd: repository.top },
      );
      expect(late.stderr).to.equal('leasehold: b was committed, and stays with bob (test)');
      // The owner keeps the files that changed after the commit.
      expect(await holders(server, repository.top)).to.deep.equal({
        dirty: 'ann',
        'not yet': 'ann',
        b: 'bob',
      });
      for (const owner of ['ann', 'bob']) await apiOf(server).end(owner);
    });

    it('keeps files that were committed before they were acquired (B3)', async () => {
      const repository = await installed();
      await repository.write('a');
      const past = new Date(Date.now() - 5_000).toISOString();
      await commit(repository, { GIT_COMMITTER_DATE: past });
      await take(server, 'ann', repository.top, 'a', 'b');
      await repository.write('b');
      expect(await commit(repository, { LEASEHOLD_OWNER: 'ann' })).to.equal('');
      expect(await holders(server, repository.top)).to.deep.equal({ a: 'ann' });
      await apiOf(server).end('ann');
    });

    /** A repository whose `main` and `side` have one commit each after a shared one. */
    async function forked(): Promise<Repository> {
      const repository = await installed();
      await commit(repository, {}, '--allow-empty');
      await repository.git('switch', '--quiet', '-c', 'side');
      for (const name of ['first', 'second']) {
        await repository.write(name);
        await commit(repository);
      }
      await repository.git('switch', '--quiet', 'main');
      await repository.write('ours');
      // Git records whole seconds: a commit in the second of an acquisition counts as later.
      await commit(repository, { GIT_COMMITTER_DATE: new Date(Date.now() - 5_000).toISOString() });
      return repository;
    }
    const ann = () => ({ LEASEHOLD_URL: server.http, LEASEHOLD_OWNER: 'ann' });

    for (const [what, ...args] of [
      ['a merge that git commits itself', 'merge', '--quiet', '--no-ff', '--no-edit', 'side'],
      ['a cherry-pick of several commits', 'cherry-pick', 'side~1', 'side'],
    ] as const) {
      it(`releases the files of ${what} (S1)`, async () => {
        const repository = await forked();
        await take(server, 'ann', repository.top, 'first', 'second', 'other');
        await repository.gitAs(ann(), ...args);
        expect(await holders(server, repository.top)).to.deep.equal({ other: 'ann' });
        await apiOf(server).end('ann');
      });
    }

    it('releases the files of a merge that moves HEAD forward (S1)', async () => {
      const repository = await forked();
      await repository.git('reset', '--quiet', '--hard', 'HEAD~1');
      await take(server, 'ann', repository.top, 'first', 'second', 'other');
      await repository.gitAs(ann(), 'merge', '--quiet', '--ff-only', 'side');
      expect(await holders(server, repository.top)).to.deep.equal({ other: 'ann' });
      await apiOf(server).end('ann');
    });

    it('keeps the files of a merge that is not committed yet (S1)', async () => {
      const repository = await forked();
      await take(server, 'ann', repository.top, 'first', 'second');
      await repository.gitAs(ann(), 'merge', '--quiet', '--squash', 'side');
      expect(await holders(server, repository.top)).to.deep.equal({ first: 'ann', second: 'ann' });
      await apiOf(server).end('ann');
    });

    for (const backend of ['--merge', '--apply']) {
      it(`releases the files of the commits that a rebase writes with ${backend} (S1)`, async () => {
        const repository = await forked();
        await repository.git('switch', '--quiet', 'side');
        await take(server, 'ann', repository.top, 'first', 'second', 'ours', 'other');
        await repository.gitAs(ann(), 'rebase', '--quiet', backend, 'main');
        // The commits that were on the base branch before are not the owner's.
        expect(await holders(server, repository.top)).to.deep.equal({ ours: 'ann', other: 'ann' });
        await apiOf(server).end('ann');
      });
    }

    it('releases the files of an amended commit (S1)', async () => {
      const repository = await forked();
      await take(server, 'ann', repository.top, 'ours', 'more', 'other');
      await repository.write('more');
      await commit(repository, { LEASEHOLD_OWNER: 'ann' }, '--amend');
      expect(await holders(server, repository.top)).to.deep.equal({ other: 'ann' });
      await apiOf(server).end('ann');
    });

    it('reports a missing server, and lets the commit succeed', async () => {
      const repository = await installed();
      await repository.write('a');
      const said = await commit(repository, { LEASEHOLD_URL: nowhere, LEASEHOLD_OWNER: 'ann' });
      expect(said).to.match(
        /^leasehold: could not give back what was committed: there is no server at [^\n]+\n$/,
      );
      expect(await repository.git('log', '--format=%s')).to.equal('x\n');
      // A committer without files to release gets no output.
      await repository.write('a');
      expect(await commit(repository, { LEASEHOLD_URL: nowhere })).to.equal('');
    });
  });
});
