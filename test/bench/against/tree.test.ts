import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { temporaryFolder } from '../../support/cleanup.ts';
import { main, nodeFlags } from '../../support/process.ts';
import { UsageError } from '../options.ts';
import { loadFileOf, openTree } from './tree.ts';

const root = fileURLToPath(new URL('../../../', import.meta.url));

async function treeWith(files: Record<string, string>): Promise<string> {
  const folder = await temporaryFolder('tree');
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, name, '..'), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return folder;
}

const packageWith = (start: string) => JSON.stringify({ scripts: { start } });

describe('another tree', () => {
  it('is started as its own start script starts it', async () => {
    const folder = await treeWith({
      'package.json': packageWith('node --max-semi-space-size=8  --no-opt server/go.ts serve'),
      'server/go.ts': '',
      'node_modules/.keep': '',
    });
    expect(openTree(folder)).to.deep.equal({
      folder,
      program: { nodeFlags: ['--max-semi-space-size=8', '--no-opt'], main: join(folder, 'server/go.ts') },
    });
  });

  it('may be this one, with the flags that tests start it with', () => {
    expect(openTree(root).program).to.deep.equal({ nodeFlags, main });
    expect(loadFileOf({ folder: root }).href).to.equal(new URL('../load/main.ts', import.meta.url).href);
  });

  it('is refused without modules, without a start script, or where that starts no file of Node', async () => {
    const modules = { 'node_modules/.keep': '' };
    const refusals = [
      [{ 'package.json': packageWith('node a.ts serve'), 'a.ts': '' }, /no node_modules/],
      [modules, /cannot be read/],
      [{ ...modules, 'package.json': '{}' }, /no start script/],
      [{ ...modules, 'package.json': packageWith('node gone.ts serve') }, /is not 'node/],
      [{ ...modules, 'package.json': packageWith('node --flag') }, /is not 'node/],
      [{ ...modules, 'package.json': packageWith('bun a.ts serve'), 'a.ts': '' }, /is not 'node/],
    ] as const;
    for (const [files, words] of refusals) {
      const folder = await treeWith(files);
      expect(() => openTree(folder), `${words}`).to.throw(UsageError, words);
    }
  });

  it('seeds with its own load process, wherever its tests are, and never with that of a package', async () => {
    const folder = await treeWith({ 'node_modules/a/bench/load/main.ts': '' });
    expect(() => loadFileOf({ folder })).to.throw(/cannot seed leases/);
    const moved = await treeWith({
      'node_modules/a/bench/load/main.ts': '',
      'checks/bench/load/main.ts': '',
    });
    expect(loadFileOf({ folder: moved }).pathname).to.equal(join(moved, 'checks/bench/load/main.ts'));
  });
});
