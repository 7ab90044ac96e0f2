import { existsSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  acquireDirectoryLock,
  DirectoryHeldError,
  type DirectoryLock,
  DirectoryUnusableError,
} from '../../../src/store/embedded/directory-lock.ts';
import {
  type Child,
  killed,
  nextLine,
  startFixture,
  temporaryDirectory,
} from '../../support/embedded-database.ts';

describe('the lock on a data directory', () => {
  let place: ReturnType<typeof temporaryDirectory>;
  let dir: string;
  const locks: DirectoryLock[] = [];
  const children: Child[] = [];

  beforeEach(() => {
    place = temporaryDirectory();
    dir = join(place.dir, 'data');
  });

  afterEach(async () => {
    for (const lock of locks.splice(0)) lock.release();
    for (const child of children.splice(0)) await killed(child);
    place.remove();
  });

  function acquire(path = dir): DirectoryLock {
    const lock = acquireDirectoryLock(path);
    locks.push(lock);
    return lock;
  }

  async function otherProcess(): Promise<{ child: Child; said: string }> {
    const child = startFixture('hold-directory', dir);
    children.push(child);
    return { child, said: await nextLine(child) };
  }

  function refusal(path = dir): Error {
    try {
      acquire(path);
    } catch (error) {
      return error as Error;
    }
    throw new Error('the lock was granted');
  }

  it('creates the directory for its user only', () => {
    acquire();
    expect(statSync(dir).mode & 0o777).to.equal(0o700);
  });

  it('refuses a second process, and names the holder and the remedy', async () => {
    const { child } = await otherProcess();
    const error = refusal() as DirectoryHeldError;
    expect(error).to.be.instanceOf(DirectoryHeldError);
    expect(error).to.include({ dir, pid: child.process.pid, host: hostname() });
    expect(error.message)
      .to.include(`process ${child.process.pid} on ${hostname()} since ${error.since}`)
      .and.include('LEASEHOLD_DATA_DIR')
      .and.include('DATABASE_URL');
  });

  it('frees the lock at once when its holder is killed', async () => {
    const { child } = await otherProcess();
    await killed(child);
    expect(existsSync(join(dir, 'holder.json'))).to.equal(true);
    acquire();
    expect(JSON.parse(readFileSync(join(dir, 'holder.json'), 'utf8')).pid).to.equal(process.pid);
  });

  it('refuses the same process twice', () => {
    acquire();
    expect(refusal()).to.be.instanceOf(DirectoryHeldError);
  });

  it('refuses the same directory under another name', () => {
    acquire();
    const alias = join(place.dir, 'alias');
    symlinkSync(dir, alias);
    expect(refusal(alias)).to.be.instanceOf(DirectoryHeldError);
  });

  it('keeps other processes out after this process was refused a second lock', async () => {
    acquire();
    refusal();
    expect((await otherProcess()).said).to.equal('DirectoryHeldError');
  });

  it('does not treat the note of a live process as a lock', () => {
    mkdirSync(dir);
    const note = { pid: process.ppid, host: hostname(), since: new Date().toISOString() };
    writeFileSync(join(dir, 'holder.json'), JSON.stringify(note));
    acquire();
  });

  for (const [what, note] of [
    ['missing', undefined],
    ['empty', ''],
    ['not JSON', '{"pid": 12'],
    ['null', 'null'],
    ['of other fields', '{"pid": "12", "host": 3}'],
  ] as const) {
    it(`reports an unknown holder when the note is ${what}`, () => {
      acquire();
      const path = join(dir, 'holder.json');
      if (note === undefined) rmSync(path);
      else writeFileSync(path, note);
      const error = refusal() as DirectoryHeldError;
      expect(error).to.be.instanceOf(DirectoryHeldError);
      expect(error.message).to.include('holder unknown');
      expect(error.pid).to.equal(undefined);
    });
  }

  it('releases idempotently, and lets another process lock the directory', async () => {
    const lock = acquire();
    lock.release();
    lock.release();
    expect((await otherProcess()).said).to.equal('held');
    lock.release();
    expect(refusal()).to.be.instanceOf(DirectoryHeldError);
  });

  it('explains why a directory cannot be used', () => {
    writeFileSync(join(place.dir, 'file'), '');
    const error = refusal(join(place.dir, 'file', 'data'));
    expect(error).to.be.instanceOf(DirectoryUnusableError);
    expect(error.message)
      .to.include(join(place.dir, 'file', 'data'))
      .and.include('LEASEHOLD_DATA_DIR');
  });

  it('fails at once where the file system accepts no directories', () => {
    expect(refusal(join('/proc', 'nowhere', 'data'))).to.be.instanceOf(DirectoryUnusableError);
  });

  it('prints no warning about SQLite', async () => {
    const { child } = await otherProcess();
    child.process.stdin.end();
    await child.exited;
    expect(child.errors.join('')).to.equal('');
  });
});
