import type { JobEvent, Json } from '../jobs/job.ts';
import type { EventType } from '../jobs/state-machine.ts';
import { iso, span } from '../time.ts';
import type { Attempt, ExplainFacts } from './facts.ts';
import {
  isLong,
  isOverMaxRuntime,
  lastSilence,
  meanIntervalMs,
  type Silence,
  silenceWords,
  wasHeard,
} from './silences.ts';
import { counted, outageText } from './text.ts';

/**
 * The kinds of steps: an event, a time without a heartbeat, a time without a server, or a series of
 * heartbeats.
 */
export const stepKinds = ['EVENT', 'SILENCE', 'OUTAGE', 'HEARTBEATS'] as const;
export type StepKind = (typeof stepKinds)[number];

export interface Step {
  kind: StepKind;
  tsMs: number;
  /** The end of a step that lasted; of a repeated step, its last time. */
  untilMs: number | null;
  /** Set for events only. */
  type: EventType | null;
  eventId: string | null;
  /** The actor; null where there is none. */
  by: string | null;
  leaseId: string | null;
  /** The step in words. */
  text: string;
  /** How often in a row; repeated steps are merged into one. */
  times: number;
}

/** The steps, and how many of them precede those that are left out. */
interface Timeline {
  steps: Step[];
  leftOutAfter: number;
}

type Facts = Pick<ExplainFacts, 'events' | 'outages' | 'nowMs' | 'job' | 'result' | 'lease'>;

/**
 * The steps in order: events, with repeated ones merged, and between them heartbeats, silences and outages.
 */
export function timelineOf(facts: Facts, attempts: readonly Attempt[]): Timeline {
  const { first, last, leftOut } = facts.events;
  const all = [...first, ...last];
  const byId = new Map(attempts.map((attempt) => [attempt.lease.leaseId, attempt]));
  const stepsFor = (events: readonly JobEvent[]) =>
    repeatedOnce(events.map((event) => eventStep(event, byId.get(event.leaseId ?? ''))));
  const between = [...outagesDuring(all, facts), ...attempts.flatMap((each) => stepsOf(each, all, facts))];
  // Where nothing is left out, equal neighbours are merged across the two halves too.
  if (leftOut === 0) {
    const steps = inOrder(stepsFor(all), between);
    return { steps, leftOutAfter: steps.length };
  }
  const againMs = last[0]?.tsMs ?? Number.POSITIVE_INFINITY;
  const before = inOrder(
    stepsFor(first),
    between.filter(({ tsMs }) => tsMs < againMs),
  );
  const after = inOrder(
    stepsFor(last),
    between.filter(({ tsMs }) => tsMs >= againMs),
  );
  return { steps: [...before, ...after], leftOutAfter: before.length };
}

/** A step that begins with an event follows it; the sort is stable. */
const inOrder = (events: readonly Step[], between: readonly Step[]): Step[] =>
  [...events, ...between].sort((a, b) => a.tsMs - b.tsMs);

const withoutDetails = { untilMs: null, type: null, eventId: null, by: null, leaseId: null, times: 1 };

/** Outages that began while the job or the lease could lose time. */
function outagesDuring([first]: readonly JobEvent[], { outages, lease, result }: Facts): Step[] {
  const endedAtMs = lease?.endedAtMs ?? result?.finishedAtMs ?? Number.POSITIVE_INFINITY;
  return outages
    .filter(({ beganAtMs }) => first && beganAtMs >= first.tsMs && beganAtMs <= endedAtMs)
    .map((away): Step => {
      const text = `${outageText(away)}; leases were extended by that time`;
      return { ...withoutDetails, kind: 'OUTAGE', tsMs: away.beganAtMs, untilMs: away.endedAtMs, text };
    });
}

/** Heartbeats and silences of an attempt whose events are in the list. */
function stepsOf(attempt: Attempt, events: readonly JobEvent[], facts: Facts): Step[] {
  const { leaseId } = attempt.lease;
  const own = events.filter((event) => event.leaseId === leaseId);
  if (own.length === 0) return [];
  const began = own.find(({ type }) => type === 'JOB_RUNNING');
  return [...heartbeatsOf(attempt, began), ...silencesOf(attempt, facts)];
}

/** From the first heartbeat to the last; where the first is not known, from the grant. */
function heartbeatsOf({ lease, signs }: Attempt, began: JobEvent | undefined): Step[] {
  const { leaseId, workerId, lastHeartbeatAtMs, grantedAtMs } = lease;
  const times = signs.heartbeats ?? 0;
  // The first heartbeat is already shown as the event that started the running.
  if (times === 0 || (times === 1 && began)) return [];
  const step = { ...withoutDetails, kind: 'HEARTBEATS' as const, leaseId, by: workerId, times };
  if (times === 1) return [{ ...step, tsMs: lastHeartbeatAtMs, text: `a heartbeat of ${workerId}` }];
  const every = meanIntervalMs(lease, signs);
  const text = `heartbeats of ${workerId}${every === null ? '' : `, one every ${span(every)} on average`}`;
  const tsMs = began?.tsMs ?? grantedAtMs;
  return [{ ...step, tsMs, untilMs: Math.max(tsMs, lastHeartbeatAtMs), text }];
}

/** The longest silence, if it was long, and the last one, if it was long or the lease expired by it. */
function silencesOf({ lease, signs }: Attempt, { nowMs, job }: Facts): Step[] {
  const { leaseId, workerId, grantedAtMs, state } = lease;
  const longest = signs.longestSilence;
  const present = lastSilence(lease, nowMs);
  // Where both are the same silence, `longest` is used: for an overdue lease it ends at the expiry, and not
  // now.
  const last = longest?.sinceMs === present.sinceMs ? longest : present;
  const ranOutByIt = state === 'EXPIRED' && !isOverMaxRuntime(lease, job);
  const step = (silence: Silence, since: string): Step => {
    const text = `no heartbeat of ${workerId} for ${silenceWords(silence, lease, ` after ${since}`)}`;
    return {
      ...withoutDetails,
      kind: 'SILENCE',
      tsMs: silence.sinceMs,
      untilMs: silence.untilMs,
      leaseId,
      text,
    };
  };
  return [
    ...(longest && longest !== last && isLong(longest, lease)
      ? [step(longest, longest.sinceMs === grantedAtMs ? 'the grant' : 'a heartbeat')]
      : []),
    ...(ranOutByIt || isLong(last, lease)
      ? [step(last, wasHeard(lease, signs) ? 'its last heartbeat' : 'the grant')]
      : []),
  ];
}

function eventStep(event: JobEvent, attempt: Attempt | undefined): Step {
  const { data, type, leaseId, eventId, tsMs } = event;
  const by = word(data.by) ?? null;
  return {
    ...withoutDetails,
    kind: 'EVENT',
    tsMs,
    type,
    eventId,
    by,
    leaseId,
    text: wordsOf(event, attempt),
  };
}

/** Merges repeated steps: a worker that repeats a lease request is denied repeatedly. */
function repeatedOnce(steps: readonly Step[]): Step[] {
  const merged: Step[] = [];
  for (const step of steps) {
    const before = merged.at(-1);
    if (before && before.type === step.type && before.text === step.text && before.by === step.by) {
      merged[merged.length - 1] = { ...before, untilMs: step.tsMs, times: before.times + 1 };
    } else merged.push(step);
  }
  return merged;
}

const word = (value: Json | undefined): string | undefined =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : undefined;

const reason = ({ data }: JobEvent): string => {
  const said = word(data.reason) ?? word(data.note);
  return said === undefined ? '' : `: ${said}`;
};

function delayWords(delayMs: Json | undefined): string {
  if (typeof delayMs !== 'number') return '';
  return delayMs === 0 ? ', to be retried at once' : `, to be retried in ${span(delayMs)}`;
}

/** `1 unit`, `2 units`; for events without the number, the unit alone. */
const countedWord = (value: Json | undefined, thing: string): string =>
  typeof value === 'number' ? counted(value, thing) : `${word(value) ?? ''} ${thing}s`.trim();

function wordsOf(event: JobEvent, attempt: Attempt | undefined): string {
  const { data } = event;
  const by = word(data.by) ?? 'an unknown client';
  switch (event.type) {
    case 'JOB_SUBMITTED':
      return `${by} submitted it`;
    case 'JOB_CLAIMED':
      return `${by} claimed it until ${word(data.claim_expires_at)}`;
    case 'JOB_PREPARING':
      return `${by} prepares it${reason(event)}`;
    case 'JOB_LEASE_PENDING':
      return `${by} waits for a lease${reason(event)}`;
    case 'LEASE_GRANTED':
      return grantText(event, by);
    case 'LEASE_DENIED':
      return `${by} was denied a lease${reason(event)}`;
    case 'JOB_RUNNING':
      return firstHeartbeat(event, attempt);
    case 'LEASE_RELEASED':
      return `${by} released the lease: ${word(data.status)}`;
    case 'LEASE_EXPIRED':
      return `the lease expired: ${whyExpired(attempt) ?? expiryWords(data.last_heartbeat_at)}`;
    case 'CLAIM_EXPIRED':
      return `the claim of ${word(data.worker_id)} expired, ${word(data.claims_lost)} in a row`;
    case 'JOB_REQUEUED': {
      return `it was requeued${delayWords(data.retry_in_ms)}${reason(event)}`;
    }
    case 'JOB_DONE':
      return 'it is done';
    case 'JOB_FAILED':
      return `it failed${reason(event)}`;
    case 'JOB_TIMEOUT':
      return `it timed out, at its last attempt${reason(event)}`;
    case 'JOB_CANCEL_REQUESTED':
      return `${by} asked to cancel it${reason(event)}`;
    case 'JOB_CANCELED':
      return `${by} canceled it${reason(event)}`;
    case 'JOB_DEAD_LETTERED':
      return deadLetterText(event);
    case 'JOB_RETRIED':
      return `${by} requeued it${reason(event)}`;
    case 'JOB_UNSCHEDULABLE':
      return unschedulableText(event);
  }
}

const grantText = ({ data: { attempt, fence, ttl_sec } }: JobEvent, by: string): string =>
  `${by} got a lease: attempt ${word(attempt)}, fence ${word(fence)}, TTL ${word(ttl_sec)} s`;

const deadLetterText = ({ data: { stream, attempts } }: JobEvent): string =>
  `it became a dead letter of stream ${word(stream)} after ${countedWord(attempts, 'attempt')}`;

const unschedulableText = ({ data: { cost_units, total } }: JobEvent): string =>
  `it was set aside: it needs ${countedWord(cost_units, 'unit')}, and the total is ${word(total)}`;

function firstHeartbeat({ tsMs, data }: JobEvent, attempt: Attempt | undefined): string {
  const by = word(data.by);
  if (!attempt) return `${by} runs it`;
  // A worker that released the job without a heartbeat has run it, although no heartbeat said so.
  if (!wasHeard(attempt.lease, attempt.signs)) return `${by} ran it without a heartbeat`;
  return `first heartbeat of ${by}, ${span(tsMs - attempt.lease.grantedAtMs)} after the grant`;
}

/** A silence that the lease survived is no reason for its expiry. */
const whyExpired = (attempt: Attempt | undefined): string | undefined =>
  attempt?.causes
    .filter(({ code }) => code !== 'long_silence')
    .map(({ text }) => text)
    .join('; ');

const expiryWords = (at: Json | undefined): string =>
  typeof at === 'string' ? `no heartbeat since ${iso(Date.parse(at))}` : 'no heartbeat came';
