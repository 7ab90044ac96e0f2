import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { platform } from 'node:process';

/** One process and no other: its pid, and when it started, because pids are used again. */
export interface ProcessId {
  pid: number;
  /** In whatever unit this machine counts; for comparing only. */
  started: string;
}

export interface ProcessFacts extends ProcessId {
  parent: number;
  /** What it was started with, its own name first. */
  words: string[];
}

/** What is known of a process, or nothing where it is gone. One that only waits to be buried is gone. */
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

/** Every process that a process has started and that is still its child, and so on; those nearest to it first. */
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

/** Start times count from the boot, so they say which boot. */
let boot: string | undefined;

function fromProc(pid: number): ProcessFacts | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may hold anything, even parentheses.
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

/** The same from `ps`, where there is no /proc. Its words are cut at blanks, which is as well as it can be done. */
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
    // It ends with 1 where there is no such process.
    return [];
  }
}
