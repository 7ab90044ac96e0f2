/** One file has one key, for every process, from every directory and through every link. */
import { mkdir, mkdtemp, realpath, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { branchOf, locate, PathError, repositoryOf } from '../../src/agent/file-key.ts';
import { temporaryFolder } from '../support/cleanup.ts';

async function newRepository(head = 'ref: refs/heads/main\n'): Promise<string> {
  const top = await realpath(await mkdtemp(join(await temporaryFolder('paths'), 'top-')));
  await mkdir(join(top, '.git'));
  await writeFile(join(top, '.git', 'HEAD'), head);
  await mkdir(join(top, 'src', 'deep'), { recursive: true });
  await writeFile(join(top, 'src', 'a.ts'), '');
  return top;
}

describe('the key of a file', () => {
  it('derives the key from the top of the git repository and the path, in any directory', async () => {
    const top = await newRepository();
    const key = { repository: top, path: 'src/a.ts' };
    expect(locate('src/a.ts', { from: top })).to.deep.equal(key);
    expect(locate('../a.ts', { from: join(top, 'src', 'deep') })).to.deep.equal(key);
    expect(locate(join(top, 'src', '.', 'deep', '..', 'a.ts'))).to.deep.equal(key);
    expect(locate(`${top}//src///a.ts`)).to.deep.equal(key);
  });

  it('derives keys for files and folders that do not exist yet', async () => {
    const top = await newRepository();
    expect(locate('new/er/file name', { from: top })).to.deep.equal({
      repository: top,
      path: 'new/er/file name',
    });
  });

  it('follows links of folders and files, also dangling ones', async () => {
    const top = await newRepository();
    await symlink(join(top, 'src'), join(top, 'link'));
    await symlink('a.ts', join(top, 'src', 'b.ts'));
    await symlink('../new.ts', join(top, 'src', 'c.ts'));
    expect(locate('link/a.ts', { from: top }).path).to.equal('src/a.ts');
    expect(locate('link/b.ts', { from: top }).path).to.equal('src/a.ts');
    expect(locate('link/c.ts', { from: top }).path).to.equal('new.ts');
    // The file system resolves '..' from the target of the link.
    await symlink(join(top, 'src', 'deep'), join(top, 'down'));
    expect(locate('down/../a.ts', { from: top }).path).to.equal('src/a.ts');
  });

  it('uses the innermost repository, and the worktree of a file in one', async () => {
    const top = await newRepository();
    const inner = join(top, 'inner');
    await mkdir(inner);
    await writeFile(join(inner, '.git'), `gitdir: ${join(top, '.git')}\n`);
    expect(locate('x', { from: inner })).to.deep.equal({ repository: inner, path: 'x' });
    expect([repositoryOf(join(top, 'src')), repositoryOf(join(inner, 'not', 'there'))]).to.deep.equal([
      top,
      inner,
    ]);
    expect([branchOf(top), branchOf(inner)]).to.deep.equal(['main', 'main']);
  });

  it('ignores a folder called .git that is no repository', async () => {
    const top = await newRepository();
    await mkdir(join(top, 'src', '.git'));
    expect(locate('src/a.ts', { from: top }).repository).to.equal(top);
  });

  it('uses the root of the file system outside repositories, or a given directory', async () => {
    const folder = await realpath(await temporaryFolder('paths'));
    expect(locate('a', { from: folder })).to.deep.equal({
      repository: '/',
      path: join(folder, 'a').slice(1),
    });
    expect(locate('a', { from: folder, root: '.' })).to.deep.equal({ repository: folder, path: 'a' });
    expect(() => locate('/elsewhere', { from: folder, root: '.' })).to.throw(PathError, folder);
    expect(locate('..a', { from: folder, root: '.' }).path).to.equal('..a');
  });

  it('refuses a path that is no file', async () => {
    const top = await newRepository();
    await symlink('loop', join(top, 'loop'));
    for (const [path, says] of [
      ['', 'not a path'],
      [' ', 'not a path'],
      ['a\0b', 'not a path'],
      ['src', 'is a directory'],
      ['.', 'is a directory'],
      ['loop', 'cannot be found out about'],
    ] as const) {
      expect(() => locate(path, { from: top }), path).to.throw(PathError, says);
    }
  });

  it('reports no branch if none is checked out', async () => {
    expect(branchOf(await newRepository('3b18e512dba79e4c8300dd08aeb37f8e728b8dad\n'))).to.equal(undefined);
    expect(branchOf('/')).to.equal(undefined);
  });
});
