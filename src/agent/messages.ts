/** Messages of the guard and the hooks for people and agents. */
import { span } from '../domain/time.ts';
import { inLine } from '../lib/terminal-text.ts';
import type { Blocker, BlockerReport, Contention, OwnerProfile } from './files-client.ts';

/** A name from another client, made safe for one line on a terminal. */
export const shown = inLine;

/** For example `claude, process 77 on host, branch main`; empty where nothing is known. */
export function profile(owner: OwnerProfile | null): string {
  const { agent, host, pid, branch } = owner ?? {};
  const process = pid == null ? undefined : `process ${pid}`;
  const place = host ? [process, `on ${host}`].filter(Boolean).join(' ') : process;
  return shown([agent, place, branch && `branch ${branch}`].filter(Boolean).join(', '));
}

/** An owner's name, with its profile where one is known. */
export function ownerName(ownerId: string, owner: OwnerProfile | null): string {
  const details = profile(owner);
  return details === '' ? shown(ownerId) : `${shown(ownerId)} (${details})`;
}

const namesOf = (paths: readonly string[]): string => paths.map(shown).join(', ');

const heldBy = ({ path, owner_id, owner, age_ms }: Blocker): string =>
  `${shown(path)} is held by ${ownerName(owner_id, owner)}, for ${span(age_ms)}`;

/** One line for a waiting caller. */
export const contendedWords = (contention: Contention): string =>
  `${deniedWords(contention)}; asking again in ${span(contention.retry_after_ms)}`;

/** The holders of the requested files. Even if the blocker has ended since, the request stays denied. */
export function deniedWords({ blockers, paths }: Contention): string {
  const [first, ...others] = blockers;
  const more = others.length === 0 ? '' : `, and ${others.length} more are held`;
  return first ? `${heldBy(first)}${more}` : `${namesOf(paths)} was denied`;
}

/** The full report of a halt, with every fact that the server returns. */
export function haltedWords(report: BlockerReport): string {
  const { contention_id, owner_id, repository, paths, denied_at, retried_at, halted_at } = report;
  const lines = [
    `halted: ${namesOf(paths)} ${paths.length === 1 ? 'was' : 'were'} denied twice, the second time after ${report.retry_s} s.`,
    `  wanted by   ${shown(owner_id)}`,
    `  repository  ${shown(repository)}`,
    ...report.blockers.flatMap(({ path, ...blocker }) => [
      `  file        ${shown(path)}`,
      `    held by   ${ownerName(blocker.owner_id, blocker.owner)}`,
      `    since     ${blocker.acquired_at} (${span(blocker.age_ms)})`,
      `    heartbeat ${blocker.last_heartbeat_at}`,
    ]),
    `  denied at   ${denied_at}`,
    `  retried at  ${retried_at}`,
    `  halted at   ${halted_at}`,
    `  blocker     ${report.blocker_changed ? 'another one than at the denial' : 'the same as at the denial'}`,
    `  contention  ${contention_id}`,
    ...instructionLines(report),
  ];
  return lines.join('\n');
}

function instructionLines({ contention_id, kept_instruction }: BlockerReport): string[] {
  const lines = [
    'It stays halted until an operator instructs it, even if its owner ends:',
    `  leasehold files instruct ${contention_id} RETRY | ABANDON | FORCE_RELEASE`,
  ];
  if (!kept_instruction) return lines;
  const { instruction, instructed_by, instructed_at, reason } = kept_instruction;
  const why = reason === null ? '' : ` (${shown(reason)})`;
  return [
    `${shown(instructed_by)} decided ${instruction} at ${instructed_at}${why}: applied when its owner asks again.`,
  ];
}
