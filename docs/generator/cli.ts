import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { commands, type Entry } from '../../src/cli/main.ts';
import { fenced, paragraphs } from './markdown.ts';

/** What `leasehold --help` prints, and `leasehold <command> --help` for every command. */
export async function cliSection(root: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, ['src/main.ts', '--help'], { cwd: root });
  return paragraphs(fenced('text', stdout), ...(await helpOf(commands)));
}

async function helpOf(entries: readonly Entry[], above = ''): Promise<string[]> {
  const parts = await Promise.all(
    entries.map(async ({ name, load }) => {
      const command = await load();
      const below = await helpOf(command.commands ?? [], `${above}${name} `);
      return [`### ${above}${name}`, fenced('text', command.help()), ...below];
    }),
  );
  return parts.flat();
}
