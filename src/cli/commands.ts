import { ConfigError } from '../config.ts';
import { UsageError } from './args.ts';
import { jobsCommand } from './jobs.ts';
import { migrateCommand } from './migrate.ts';
import { serveCommand } from './serve.ts';
import { versionCommand } from './version.ts';

/** One command of `leasehold`. Answers with its exit code. */
export interface Command {
  name: string;
  about: string;
  /** What `--help` shows below the first line. */
  help(): string;
  run(args: readonly string[]): Promise<number>;
}

export const exitCodes = { ok: 0, failed: 1, usage: 2 } as const;

const commands: readonly Command[] = [serveCommand, migrateCommand, jobsCommand, versionCommand];

/** Runs the command that the arguments name. */
export async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(overview());
    return name === undefined ? exitCodes.usage : exitCodes.ok;
  }
  const command = commands.find((candidate) => candidate.name === (name === '--version' ? 'version' : name));
  if (!command) return complain(`there is no command ${JSON.stringify(name)}`, 'leasehold --help');
  try {
    return await command.run(rest);
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConfigError) {
      return complain(error.message, `leasehold ${command.name} --help`);
    }
    throw error;
  }
}

function complain(problem: string, help: string): number {
  process.stderr.write(`leasehold: ${problem}\nSee '${help}'.\n`);
  return exitCodes.usage;
}

const overview =
  () => `Leasehold leases work: a job belongs to one worker at a time, for as long as it is heard from.

Usage: leasehold <command> [--help]

${commands.map(({ name, about }) => `  ${name.padEnd(10)}${about}`).join('\n')}

Exit codes: 0 done, 1 failed, 2 not understood.
`;
