/** Another checkout of Leasehold: how its own package starts its server, and what fills its own schema. */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { UsageError } from '../options.ts';
import type { Program } from '../server-process.ts';

export interface Tree {
  folder: string;
  program: Program;
}

export function openTree(path: string): Tree {
  const folder = resolve(path);
  if (!existsSync(join(folder, 'node_modules')))
    throw new UsageError(`${folder} has no node_modules; run npm ci there`);
  return { folder, program: programOf(folder) };
}

/** The flags of `npm start` and the file that it runs. They are the tree's own, wherever it keeps its tests. */
function programOf(folder: string): Program {
  const words = startScript(folder).split(/\s+/);
  const fileAt = words.findIndex((word, i) => i > 0 && !word.startsWith('-'));
  const main = join(folder, words[fileAt] ?? '');
  if (words[0] !== 'node' || fileAt < 0 || !existsSync(main))
    throw new UsageError(`the start script of ${folder} is not 'node <flags> <file> serve'`);
  return { nodeFlags: words.slice(1, fileAt), main };
}

function startScript(folder: string): string {
  try {
    const { scripts } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    if (typeof scripts?.start === 'string') return scripts.start;
  } catch (error) {
    throw new UsageError(`the package.json of ${folder} cannot be read: ${error}`);
  }
  throw new UsageError(`the package.json of ${folder} has no start script`);
}

/** The tree's own load process: it seeds leases as its own schema wants them. */
export function loadFileOf({ folder }: Pick<Tree, 'folder'>): URL {
  const [file] = globSync('**/bench/load/main.ts', {
    cwd: folder,
    exclude: (name) => ['node_modules', '.git', 'dist'].includes(basename(name)),
  }).sort();
  if (file === undefined)
    throw new Error(`${folder} cannot seed leases: it has no file that ends in bench/load/main.ts`);
  return pathToFileURL(join(folder, file));
}
