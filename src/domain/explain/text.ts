import type { JsonObject } from '../jobs/job.ts';
import { span } from '../time.ts';
import type { Cause, CauseCode, OutageSpan } from './facts.ts';

/** A cause; unknown times are null. */
export const cause = (
  code: CauseCode,
  text: string,
  more: { sinceMs?: number | null; untilMs?: number | null; facts?: JsonObject } = {},
): Cause => ({
  code,
  text,
  sinceMs: more.sinceMs ?? null,
  untilMs: more.untilMs ?? null,
  facts: more.facts ?? {},
});

/** `1 job`, `2 jobs`. */
export const counted = (count: number, thing: string): string =>
  count === 1 ? `1 ${thing}` : `${count.toLocaleString('en')} ${thing}s`;

/** States that a count stopped at its bound. */
export const countedTo = (count: number, most: number, thing: string): string =>
  count > most ? `more than ${counted(most, thing)}` : counted(count, thing);

/** The text of a time in which no server could receive heartbeats. */
export const outageText = ({ beganAtMs, endedAtMs }: OutageSpan): string =>
  `no server ran, or none reached the database, for ${span(endedAtMs - beganAtMs)}`;
