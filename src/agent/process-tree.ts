import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { platform } from 'node:process';

/** Identifies one process: its pid, and its start time, because pids are reused. */
export interface ProcessId {
  pid: number;
  /** In the unit of this machine; only for comparison. */
  started: string;
}

export interface ProcessFacts extends ProcessId {
  parent: number;
  /** The command line, with the program's name first. */
  words: string[];
}

/** The facts of a process; undefined where it is gone. A zombie counts as gone. */
export function lookUp(pid: number): ProcessFacts | undefined {
  return platform === 'linux' ? fromProc(pid) : fromPs(['-p', String(pid)])[0];
}

export function isAlive({ pid, started }: ProcessId): boolean {
  return lookUp(pid)?.started === started;
}

/** The parent of this process, its parent, and so on. */
export function ancestors(): ProcessFacts[] {
  const line: ProcessFacts[] = [];
  for (let at = lookUp(process.ppid); at !== undefined; at = lookUp(at.parent)) line.push(at);
  return line;
}

/** All descendants of a process that are still connected to it by living parents, the nearest first. */
export function descendants(pid: number): ProcessFacts[] {
  const all = platform === 'linux' ? everyProc() : fromPs(['-A']);
  const found: ProcessFacts[] = [];
  for (let parents = [pid]; parents.length > 0; ) {
    const children = all.filter(({ parent }) => parents.includes(parent));
    found.push(...children);
    parents = children.map((child) => child.pid);
  }
  return found;
}

/** Start times count from the boot, so they are qualified by the boot's id. */
let boot: string | undefined;

function fromProc(pid: number): ProcessFacts | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may contain any characters, even parentheses.
    const [state, parent, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (state === 'Z' || state === 'X') return undefined;
    boot ??= readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    return { pid, parent: Number(parent), started: `${boot} ${rest[17]}`, words };
  } catch {
    return undefined;
  }
}

function everyProc(): ProcessFacts[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map((pid) => fromProc(Number(pid))).filter((facts) => facts !== undefined);
}

/**
 * The same from `ps`, where there is no /proc. Arguments are split at blanks, because `ps` does not delimit
 * them.
 */
export function fromPs(which: readonly string[]): ProcessFacts[] {
  try {
    const format = 'pid=,ppid=,stat=,lstart=,args=';
    const env = { ...process.env, LC_ALL: 'C', TZ: 'UTC' };
    const lines = execFileSync('ps', [...which, '-ww', '-o', format], {
      encoding: 'utf8',
      env,
      stdio: 'pipe',
    });
    return lines.split('\n').flatMap((line) => {
      const [pid, parent, state, ...rest] = line.trim().split(/ +/);
      if (rest.length < 5 || state?.startsWith('Z')) return [];
      return [
        {
          pid: Number(pid),
          parent: Number(parent),
          started: rest.slice(0, 5).join(' '),
          words: rest.slice(5),
        },
      ];
    });
  } catch {
    // `ps` exits with 1 where there is no such process.
    return [];
  }
}
