import type { Attempt, ExplainFacts } from './explain-facts.ts';
import { wasHeard } from './explain-leases.ts';
import type { JobEvent, Json } from './job.ts';
import type { EventType } from './machine.ts';
import { iso, span } from './times.ts';

/** What a step of the story is: something that happened, a silence of a worker, or a time without a server. */
export const stepKinds = ['EVENT', 'SILENCE', 'OUTAGE'] as const;
export type StepKind = (typeof stepKinds)[number];

export interface Step {
  kind: StepKind;
  tsMs: number;
  /** When it was over, for what lasted; of what was repeated, the last time. */
  untilMs: number | null;
  /** Of an event. */
  type: EventType | null;
  eventId: string | null;
  /** Who did it, and nobody where it is no event. */
  by: string | null;
  leaseId: string | null;
  /** In words. */
  text: string;
  /** How often in a row; what is repeated is told once. */
  times: number;
}

/** Silences that are shorter than this share of the TTL are how heartbeats go. */
const longSilence = 0.5;

/** The story in order: events, what was repeated told once, and between them the silences and the times without a server. */
export function storyOf(
  events: readonly JobEvent[],
  facts: Pick<ExplainFacts, 'outages' | 'nowMs'>,
  attempts: readonly Attempt[],
): Step[] {
  const [first] = events;
  if (!first) return [];
  const fromMs = first.tsMs;
  const toMs = events.at(-1)?.tsMs ?? fromMs;
  const byId = new Map(attempts.map((attempt) => [attempt.lease.leaseId, attempt]));
  const told = repeatedOnce(events.map((event) => eventStep(event, byId.get(event.leaseId ?? ''))));
  const leases = new Set(events.map(({ leaseId }) => leaseId));
  const silences = attempts
    .filter(({ lease }) => leases.has(lease.leaseId))
    .flatMap((attempt) => silenceOf(attempt, facts.nowMs));
  const away = facts.outages
    .filter(({ beganAtMs }) => beganAtMs >= fromMs && beganAtMs <= Math.max(toMs, facts.nowMs))
    .map(({ beganAtMs, endedAtMs }): Step => {
      const text = `no server was alive for ${span(endedAtMs - beganAtMs)}; leases were given back what they lost by it`;
      return { ...bare, kind: 'OUTAGE', tsMs: beganAtMs, untilMs: endedAtMs, text };
    });
  // A silence that begins with an event stands after it; the order among equals is kept.
  return [...told, ...away, ...silences].sort((a, b) => a.tsMs - b.tsMs);
}

const bare = { untilMs: null, type: null, eventId: null, by: null, leaseId: null, times: 1 };

/** From the last sign of life to the end of the lease, or to now. */
function silenceOf({ lease }: Attempt, nowMs: number): Step[] {
  const { leaseId, workerId, lastHeartbeatAtMs, state, ttlS } = lease;
  const untilMs = state === 'ACTIVE' ? nowMs : (lease.endedAtMs ?? lease.expiresAtMs);
  const ms = untilMs - lastHeartbeatAtMs;
  if (state === 'RELEASED' || (state === 'ACTIVE' && ms < ttlS * 1000 * longSilence)) return [];
  const since = wasHeard(lease) ? 'its last heartbeat' : 'the grant';
  const text = `nothing was heard of ${workerId} for ${span(ms)} after ${since}`;
  return [{ ...bare, kind: 'SILENCE', tsMs: lastHeartbeatAtMs, untilMs, leaseId, text }];
}

function eventStep(event: JobEvent, attempt: Attempt | undefined): Step {
  const { data, type, leaseId, eventId, tsMs } = event;
  const by = word(data.by) ?? null;
  return { ...bare, kind: 'EVENT', tsMs, type, eventId, by, leaseId, text: wordsOf(event, attempt) };
}

/** A worker that asks for a lease again and again is denied again and again. */
function repeatedOnce(steps: readonly Step[]): Step[] {
  const told: Step[] = [];
  for (const step of steps) {
    const before = told.at(-1);
    if (before && before.type === step.type && before.text === step.text && before.by === step.by) {
      told[told.length - 1] = { ...before, untilMs: step.tsMs, times: before.times + 1 };
    } else told.push(step);
  }
  return told;
}

const word = (value: Json | undefined): string | undefined =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : undefined;

const reason = ({ data }: JobEvent): string => {
  const said = word(data.reason) ?? word(data.note);
  return said === undefined ? '' : `: ${said}`;
};

function delayWords(delayMs: Json | undefined): string {
  if (typeof delayMs !== 'number') return '';
  return delayMs === 0 ? ', to be tried again at once' : `, to be tried again in ${span(delayMs)}`;
}

function wordsOf(event: JobEvent, attempt: Attempt | undefined): string {
  const { data } = event;
  const by = word(data.by) ?? 'nobody';
  switch (event.type) {
    case 'JOB_SUBMITTED':
      return `${by} submitted it`;
    case 'JOB_CLAIMED':
      return `${by} claimed it until ${word(data.claim_expires_at)}`;
    case 'JOB_PREPARING':
      return `${by} gets ready${reason(event)}`;
    case 'JOB_LEASE_PENDING':
      return `${by} waits for a lease${reason(event)}`;
    case 'LEASE_GRANTED':
      return `${by} got a lease: attempt ${word(data.attempt)}, fence ${word(data.fence)}, TTL ${word(data.ttl_sec)} s`;
    case 'LEASE_DENIED':
      return `${by} got no lease${reason(event)}`;
    case 'JOB_RUNNING':
      return firstHeartbeat(event, attempt);
    case 'LEASE_RELEASED':
      return `${by} gave the lease back: ${word(data.status)}`;
    case 'LEASE_EXPIRED':
      return `the lease expired: ${attempt?.causes.map(({ text }) => text).join('; ') ?? expiryWords(data.last_heartbeat_at)}`;
    case 'CLAIM_EXPIRED':
      return `the claim of ${word(data.worker_id)} ran out, ${word(data.claims_lost)} in a row`;
    case 'JOB_REQUEUED': {
      return `back into the queue${delayWords(data.retry_in_ms)}${reason(event)}`;
    }
    case 'JOB_DONE':
      return 'it is done';
    case 'JOB_FAILED':
      return `it failed${reason(event)}`;
    case 'JOB_TIMEOUT':
      return `it timed out, with no attempt left${reason(event)}`;
    case 'JOB_CANCEL_REQUESTED':
      return `${by} asked to cancel it${reason(event)}`;
    case 'JOB_CANCELED':
      return `${by} canceled it${reason(event)}`;
    case 'JOB_DEAD_LETTERED':
      return `stream ${word(data.stream)} gave it up after ${word(data.attempts)} attempts`;
    case 'JOB_RETRIED':
      return `${by} put it back in line${reason(event)}`;
    case 'JOB_UNSCHEDULABLE':
      return `it was put aside: it costs ${word(data.cost_units)} units, and there are ${word(data.total)} in all`;
  }
}

function firstHeartbeat({ tsMs, data }: JobEvent, attempt: Attempt | undefined): string {
  const by = word(data.by);
  if (!attempt) return `${by} runs it`;
  // Whoever hands in a result without a heartbeat before has been running, though nobody was told.
  if (!wasHeard(attempt.lease)) return `${by} ran it without a heartbeat`;
  return `first heartbeat of ${by}, ${span(tsMs - attempt.lease.grantedAtMs)} after the grant`;
}

const expiryWords = (at: Json | undefined): string =>
  typeof at === 'string' ? `no heartbeat since ${iso(Date.parse(at))}` : 'no heartbeat came';
