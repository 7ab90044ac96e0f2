/** What the gate says to people and to agents. */
import { inLine } from '../lib/terminal-text.ts';
import type { Blocker, BlockerReport, Contention, OwnerProfile } from './files-client.ts';

/** A name as it may stand in a line on a terminal: others have chosen it. */
export const shown = inLine;

/** A time as one would say it: `45 s`, `12 min`, `3 h`. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 300) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 180 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}

/** For example `claude, process 77 on host, branch main`; empty where nothing is known. */
export function profile(owner: OwnerProfile | null): string {
  const { agent, host, pid, branch } = owner ?? {};
  const process = pid == null ? undefined : `process ${pid}`;
  const place = host ? [process, `on ${host}`].filter(Boolean).join(' ') : process;
  return shown([agent, place, branch && `branch ${branch}`].filter(Boolean).join(', '));
}

/** Who an owner is: its name, and what is known of it. */
export function ownerName(ownerId: string, owner: OwnerProfile | null): string {
  const details = profile(owner);
  return details === '' ? shown(ownerId) : `${shown(ownerId)} (${details})`;
}

const namesOf = (paths: readonly string[]): string => paths.map(shown).join(', ');

const heldBy = ({ path, owner_id, owner, age_ms }: Blocker): string =>
  `${shown(path)} is held by ${ownerName(owner_id, owner)}, for ${duration(age_ms)}`;

/** One line for who waits. */
export const contendedWords = (contention: Contention): string =>
  `${deniedWords(contention)}; asking again in ${duration(contention.retry_after_ms)}`;

/** Who has what was asked for. The blocker may be gone already, and it is denied still. */
export function deniedWords({ blockers, paths }: Contention): string {
  const [first, ...others] = blockers;
  const more = others.length === 0 ? '' : `, and ${others.length} more are held`;
  return first ? `${heldBy(first)}${more}` : `${namesOf(paths)} was denied`;
}

/** The full report of a halt. Nothing that the server says of it is left out. */
export function haltedWords(report: BlockerReport): string {
  const { contention_id, owner_id, repository, paths, denied_at, retried_at, halted_at } = report;
  const lines = [
    `halted: ${namesOf(paths)} ${paths.length === 1 ? 'was' : 'were'} not to be had, at first nor ${report.retry_s} s later.`,
    `  wanted by   ${shown(owner_id)}`,
    `  repository  ${shown(repository)}`,
    ...report.blockers.flatMap(({ path, ...blocker }) => [
      `  file        ${shown(path)}`,
      `    held by   ${ownerName(blocker.owner_id, blocker.owner)}`,
      `    since     ${blocker.acquired_at} (${duration(blocker.age_ms)})`,
      `    heard at  ${blocker.last_heartbeat_at}`,
    ]),
    `  denied at   ${denied_at}`,
    `  retried at  ${retried_at}`,
    `  halted at   ${halted_at}`,
    `  blocker     ${report.blocker_changed ? 'another than when it was denied' : 'the same as when it was denied'}`,
    `  contention  ${contention_id}`,
    ...instructionLines(report),
  ];
  return lines.join('\n');
}

function instructionLines({ contention_id, kept_instruction }: BlockerReport): string[] {
  const lines = [
    'It waits for an instruction, however long, and whether or not its owner is still there. An operator decides:',
    `  leasehold files instruct ${contention_id} RETRY | ABANDON | FORCE_RELEASE`,
  ];
  if (!kept_instruction) return lines;
  const { instruction, instructed_by, instructed_at, reason } = kept_instruction;
  const why = reason === null ? '' : ` (${shown(reason)})`;
  return [
    `${shown(instructed_by)} decided ${instruction} at ${instructed_at}${why}: applied when its owner asks again.`,
  ];
}

/** A path may have 4,096 characters; for one that has, not every other line is to be as long. */
const columnMax = 100;

/** Lines below a heading, each column as wide as its widest cell. What is far too wide for that stands out of its line. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [heading, ...rows.map((row) => row.map(shown))];
  const widest = (i: number) => all.reduce((most, row) => Math.max(most, row[i]?.length ?? 0), 0);
  const widths = heading.map((_, i) => Math.min(widest(i), columnMax));
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd();
  return all.map(line).join('\n');
}
