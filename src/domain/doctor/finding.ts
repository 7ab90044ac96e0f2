import type { JsonObject } from '../jobs/job.ts';
import { span } from '../time.ts';
import type { ClockFacts } from './facts.ts';

export const findingLevels = ['OK', 'WARN', 'PROBLEM'] as const;
export type FindingLevel = (typeof findingLevels)[number];

export const findingAreas = ['server', 'access', 'database', 'queue', 'redis'] as const;
export type FindingArea = (typeof findingAreas)[number];

export interface Finding {
  area: FindingArea;
  /** The check, as a stable code. */
  code: string;
  level: FindingLevel;
  /** The finding, in a sentence. */
  text: string;
  /** What the operator should do; null where nothing is to be done. */
  advice: string | null;
  /** The figures behind the sentence, under stable names. */
  facts: JsonObject;
}

export const worstOf = (findings: readonly Pick<Finding, 'level'>[]): FindingLevel =>
  findingLevels.findLast((level) => findings.some((each) => each.level === level)) ?? 'OK';

export const finding = (
  area: FindingArea,
  code: string,
  level: FindingLevel,
  text: string,
  advice: string | null = null,
  facts: JsonObject = {},
): Finding => ({ area, code, level, text, advice: level === 'OK' ? null : advice, facts });

/** Reports a clock that is ahead or behind by more than the uncertainty of the measurement. */
export function clockFinding(
  { aheadMs, uncertainMs }: ClockFacts,
  { area, code, ours, theirs }: { area: FindingArea; code: string; ours: string; theirs: string },
): Finding {
  const sureMs = Math.max(0, Math.abs(aheadMs) - uncertainMs);
  const level = sureMs > wrongClockMs ? 'PROBLEM' : sureMs > offClockMs ? 'WARN' : 'OK';
  const text =
    level === 'OK'
      ? `the clocks of ${ours} and ${theirs} agree, to ${span(Math.abs(aheadMs) + uncertainMs)}`
      : `the clock of ${theirs} is ${span(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'} that of ${ours}`;
  return finding(
    area,
    code,
    level,
    text,
    'set both clocks by NTP; leases go by the clock of the database alone',
    {
      ahead_ms: Math.round(aheadMs),
      uncertain_ms: Math.ceil(uncertainMs),
    },
  );
}

const offClockMs = 2_000;
/** Ids contain the servers' clocks, and lists by time search for them within ten minutes at most. */
const wrongClockMs = 5 * 60_000;

/** A finding about the database. */
export const found = (
  code: string,
  level: FindingLevel,
  text: string,
  advice: string | null = null,
  facts: JsonObject = {},
) => finding('database', code, level, text, advice, facts);

/** A finding for a part that could not be read. */
export const unread = (code: string, what: string): Finding =>
  found(
    code,
    'WARN',
    `${what} could not be read in time`,
    'ask again; if it stays so, see what holds the tables locked',
  );
