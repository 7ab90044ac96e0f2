/** Where a PostgreSQL server that tests can start is installed, if anywhere. */
import { execFileSync } from 'node:child_process';
import { accessSync, constants, globSync, realpathSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

const needed = ['initdb', 'postgres', 'psql'];
const oldestMajor = 14;

/** Debian, Red Hat, Homebrew (Apple silicon, Intel, Linux) and Postgres.app, each possibly with several versions. */
const wellKnown = [
  '/usr/lib/postgresql/*/bin',
  '/usr/pgsql-*/bin',
  '/opt/homebrew/opt/postgresql@*/bin',
  '/usr/local/opt/postgresql@*/bin',
  '/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin',
  '/Applications/Postgres.app/Contents/Versions/*/bin',
];

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The full path of a program on the PATH. */
export function findOnPath(program: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, program)).find(isExecutable);
}

/** The version of the server in a bin directory, such as '15.18'. */
export function postgresVersion(bin: string): string {
  const output = execFileSync(join(bin, 'postgres'), ['--version'], { encoding: 'utf8' });
  return /(\d+(?:\.\d+)*\w*)/.exec(output.replace(/^.*PostgreSQL\)/, ''))?.[1] ?? output.trim();
}

function isUsable(bin: string): boolean {
  if (!needed.every((program) => isExecutable(join(bin, program)))) return false;
  try {
    return Number.parseInt(postgresVersion(bin), 10) >= oldestMajor;
  } catch {
    return false;
  }
}

function* candidates(): Iterable<string> {
  // A link on the PATH may stand alone, so what counts is the directory of the file it leads to.
  const initdb = findOnPath('initdb');
  if (initdb) yield dirname(realpathSync(initdb));
  const major = (folder: string) => Number(/\d+/.exec(folder)?.[0] ?? 0);
  for (const pattern of wellKnown) yield* globSync(pattern).sort((a, b) => major(b) - major(a));
}

function search(): string | undefined {
  const given = process.env.LEASEHOLD_TEST_PG_BIN;
  if (given === 'none') return undefined;
  if (given) {
    if (isUsable(given)) return given;
    throw new Error(
      `LEASEHOLD_TEST_PG_BIN is '${given}', which does not hold ${needed.join(', ')} of PostgreSQL ${oldestMajor} or later`,
    );
  }
  for (const candidate of candidates()) if (isUsable(candidate)) return candidate;
  return undefined;
}

let found: { bin: string | undefined } | undefined;

/**
 * The bin directory of a PostgreSQL that tests can use: the one that LEASEHOLD_TEST_PG_BIN names ('none' does without),
 * one on the PATH, or the newest in a known place.
 */
export function findPostgres(): string | undefined {
  found ??= { bin: search() };
  return found.bin;
}
