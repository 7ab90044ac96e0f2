/**
 * What the kernel says of a process, from `/proc`. Where there is no such thing, everything here is undefined and the
 * benchmark does without.
 */
import { readFileSync } from 'node:fs';

/** The kernel tells times in hundredths of a second on every Linux, whatever its own clock does. */
const tickMs = 10;

function fields(pid: number): number[] | undefined {
  const text = read(`/proc/${pid}/stat`);
  // The name in parentheses may itself hold spaces and parentheses; what counts comes after the last one.
  return text
    ?.slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Processor time of a process with all its threads. */
export function cpuMs(pid: number): number | undefined {
  const stat = fields(pid);
  return stat && ((stat[11] ?? 0) + (stat[12] ?? 0)) * tickMs;
}

/** Processor time of a process, its children, and the children that it has already buried. */
export function familyCpuMs(pid: number): number | undefined {
  const own = fields(pid);
  if (!own) return undefined;
  const children = (read(`/proc/${pid}/task/${pid}/children`) ?? '').trim().split(' ').filter(Boolean);
  const living = children.map((child) => cpuMs(Number(child)) ?? 0).reduce((sum, ms) => sum + ms, 0);
  const ownTicks = [11, 12, 13, 14].reduce((sum, at) => sum + (own[at] ?? 0), 0);
  return ownTicks * tickMs + living;
}

/** Processor time of everything on the machine, and what a hypervisor kept from it. */
export function machineCpuMs(): number | undefined {
  const numbers = /^cpu +(.*)/
    .exec(read('/proc/stat') ?? '')?.[1]
    ?.split(' ')
    .map(Number);
  const [user, nice, system, , , interrupts, softInterrupts, stolen] = numbers ?? [];
  const ticks = [user, nice, system, interrupts, softInterrupts, stolen];
  return numbers && ticks.reduce<number>((sum, some) => sum + (some ?? 0), 0) * tickMs;
}

/** Memory that a process has in use, in MiB. */
export const residentMiB = (pid: number): number | undefined => memoryMiB(pid, 'VmRSS');

/** The most that it has ever had in use. */
export const peakResidentMiB = (pid: number): number | undefined => memoryMiB(pid, 'VmHWM');

function memoryMiB(pid: number, name: string): number | undefined {
  const kib = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(`/proc/${pid}/status`) ?? '')?.[1];
  return kib === undefined ? undefined : Number(kib) / 1024;
}
