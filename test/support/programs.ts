/**
 * Programs that tests start and that `npm ci` does not install. Tests of a missing program are not defined; the
 * report names the program and those tests in one 'not run' line. LEASEHOLD_TEST_REQUIRE (comma separated) turns a
 * missing program into a failure, so that CI cannot pass by testing less.
 */
import { findOnPath } from './find-postgres.ts';
import { findPostgres } from './postgres.ts';

const firstOnPath = (...names: string[]): string | undefined => {
  for (const name of names) {
    const found = findOnPath(name);
    if (found !== undefined) return found;
  }
  return undefined;
};

/** How each program is found. */
const finders = {
  postgresql: findPostgres,
  redis: () => findOnPath('redis-server'),
  chromium: () => firstOnPath('chromium', 'chromium-browser', 'google-chrome'),
  zsh: () => findOnPath('zsh'),
  openssl: () => findOnPath('openssl'),
  go: () => findOnPath('go'),
  java: () => findOnPath('javac'),
  python: () => findOnPath('python3'),
} satisfies Record<string, () => string | undefined>;

export type Program = keyof typeof finders;

const notRun = new Map<Program, string[]>();

/** The path of a program, or undefined where this machine has none. */
export const findProgram = (program: Program): string | undefined => finders[program]();

/** The path of a program that the caller has made sure of. */
export function programPath(program: Program): string {
  const path = findProgram(program);
  if (path === undefined) throw new Error(`${program} is not on this machine`);
  return path;
}

/** A describe block for tests that need a program. Without the program it becomes a part of the 'not run' line. */
export function describeWith(program: Program, title: string, define: () => void): void {
  if (findProgram(program) !== undefined) {
    describe(title, define);
    return;
  }
  const titles = notRun.get(program) ?? [];
  titles.push(title);
  notRun.set(program, titles);
}

/** Notes tests that a module leaves out by itself because a program is missing. */
export function noteNotRun(program: Program, title: string): void {
  notRun.set(program, [...(notRun.get(program) ?? []), title]);
}

/** What this run left out, in one line, or undefined where it left out nothing. */
export function notRunLine(): string | undefined {
  if (notRun.size === 0) return undefined;
  const parts = [...notRun].map(([program, titles]) => `${program} (${[...new Set(titles)].join(', ')})`);
  return `not run: ${parts.join('; ')}`;
}

/** Fails where LEASEHOLD_TEST_REQUIRE names a program that is missing or unknown. */
export function checkRequired(): void {
  const words = (process.env.LEASEHOLD_TEST_REQUIRE ?? '').split(',').map((word) => word.trim());
  for (const word of words.filter((word) => word !== '')) {
    const known = Object.keys(finders);
    if (!known.includes(word))
      throw new Error(`LEASEHOLD_TEST_REQUIRE names '${word}'; known are ${known.join(', ')}`);
    if (findProgram(word as Program) === undefined)
      throw new Error(`LEASEHOLD_TEST_REQUIRE names '${word}', and there is none on this machine`);
  }
}
