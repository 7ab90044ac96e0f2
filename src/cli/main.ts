import { ConfigError } from '../config.ts';
import { inLines } from '../lib/terminal-text.ts';
import { enterCallersDirectory } from './callers-directory.ts';
import { type FlagTypes, readColorMode, UsageError } from './support/args.ts';
import { painted, usesColor } from './support/color.ts';

/** One command of `leasehold`. `run` returns the exit code. */
export interface Command {
  name: string;
  flags: FlagTypes;
  /** The possible first arguments. */
  verbs?: readonly { name: string; flags: FlagTypes }[];
  /** Nested commands that the first argument may name. */
  commands?: readonly Entry[];
  /** The text of `--help` below the first line. */
  help(): string;
  run(args: readonly string[]): Promise<number>;
}

export const exitCodes = { ok: 0, failed: 1, usage: 2 } as const;

export interface Entry {
  name: string;
  about: string;
  /** Whether the command acts on the user's current directory. */
  usesDirectory?: true;
  /**
   * Commands are loaded one at a time, because guards and hooks start often and other programs wait for them.
   */
  load(): Promise<Command>;
}

export const commands: readonly Entry[] = [
  {
    name: 'serve',
    about: 'Serve until SIGTERM or SIGINT.',
    load: async () => (await import('./commands/serve.ts')).serveCommand,
  },
  {
    name: 'migrate',
    about: 'Migrate the schema of the database.',
    load: async () => (await import('./commands/migrate.ts')).migrateCommand,
  },
  {
    name: 'jobs',
    about: 'Show, submit, cancel and retry jobs.',
    load: async () => (await import('./commands/jobs.ts')).jobsCommand,
  },
  {
    name: 'leases',
    about: 'Show leases.',
    load: async () => (await import('./commands/leases.ts')).leasesCommand,
  },
  {
    name: 'queue',
    about: 'Show waiting jobs, why they wait, and which workers ask for them.',
    load: async () => (await import('./commands/queue.ts')).queueCommand,
  },
  {
    name: 'streams',
    about: 'Show the number of jobs in each stream.',
    load: async () => (await import('./commands/streams.ts')).streamsCommand,
  },
  {
    name: 'workers',
    about: 'Show connected and waiting workers, and what they ask for.',
    load: async () => (await import('./commands/workers.ts')).workersCommand,
  },
  {
    name: 'explain',
    about: 'Explain the state of a job or a lease.',
    load: async () => (await import('./commands/explain.ts')).explainCommand,
  },
  {
    name: 'stats',
    about: 'Show the figures of the queue, once or every second.',
    load: async () => (await import('./commands/stats.ts')).statsCommand,
  },
  {
    name: 'capacity',
    about: 'Show and change the capacity.',
    load: async () => (await import('./commands/capacity.ts')).capacityCommand,
  },
  {
    name: 'keys',
    about: 'Create, rotate and revoke the keys of callers.',
    load: async () => (await import('./commands/keys.ts')).keysCommand,
  },
  {
    name: 'quotas',
    about: 'Show and change what tenants may use at most.',
    load: async () => (await import('./commands/quotas.ts')).quotasCommand,
  },
  {
    name: 'audit',
    about: 'See privileged acts and refused attempts.',
    load: async () => (await import('./commands/audit.ts')).auditCommand,
  },
  {
    name: 'doctor',
    about: 'Find problems of a server, its database and its Redis.',
    load: async () => (await import('./commands/doctor.ts')).doctorCommand,
  },
  {
    name: 'guard',
    about: 'Run a command while it holds leases on files.',
    usesDirectory: true,
    load: async () => (await import('./commands/guard.ts')).guardCommand,
  },
  {
    name: 'hook',
    about: 'Lease the files that coding agents write and git commits.',
    usesDirectory: true,
    load: async () => (await import('./commands/hook.ts')).hookCommand,
  },
  {
    name: 'files',
    about: 'Show leased files and waiting owners, and decide halts.',
    usesDirectory: true,
    load: async () => (await import('./commands/files.ts')).filesCommand,
  },
  {
    name: 'version',
    about: 'Print the version.',
    load: async () => (await import('./commands/version.ts')).versionCommand,
  },
];

/** Runs the command that the arguments name. */
export async function main(args: readonly string[]): Promise<number> {
  try {
    return await runCommand(withoutColor(args));
  } catch (error) {
    if (error instanceof UsageError) return complain(error.message, 'leasehold --help');
    throw error;
  }
}

/** The arguments without a `--color` before the command. Behind it, the command reads the flag. */
function withoutColor(args: readonly string[]): readonly string[] {
  const [first = '', second = ''] = args;
  if (first !== '--color' && !first.startsWith('--color=')) return args;
  readColorMode(first === '--color' ? second : first.slice('--color='.length));
  return args.slice(first === '--color' ? 2 : 1);
}

async function runCommand(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(overview());
    return name === undefined ? exitCodes.usage : exitCodes.ok;
  }
  const entry = commands.find((candidate) => candidate.name === (name === '--version' ? 'version' : name));
  if (!entry) return complain(`there is no command ${JSON.stringify(name)}`, 'leasehold --help');
  if (entry.usesDirectory) enterCallersDirectory();
  const command = await entry.load();
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
  const prefix = painted('leasehold:', 'red', usesColor(process.stderr));
  process.stderr.write(`${prefix} ${inLines(problem)}\nSee '${help}'.\n`);
  return exitCodes.usage;
}

const overview = () => `Leasehold leases work: a job belongs to one worker at a time, as long as its
heartbeats arrive.

Usage: leasehold <command> [--help]

${commands.map(({ name, about }) => `  ${name.padEnd(10)}${about}`).join('\n')}

  --color <when>  auto, always or never: when output has colours. auto is the
                  default: on a terminal, unless NO_COLOR is set. Every
                  command takes it; JSON is never coloured.

Times are in UTC.
Exit codes: 0 done, 1 failed, 2 usage error. A guard exits as its command does,
and has some codes of its own.
`;
