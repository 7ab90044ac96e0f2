import type { Job } from '../jobs/job.ts';
import { isClaimed, isLeased, isTerminal } from '../jobs/state-machine.ts';
import { iso, span } from '../time.ts';
import {
  type Attempt,
  aheadMax,
  type Cause,
  type EndingLease,
  type ExplainFacts,
  type JobAhead,
  type QueuePosition,
} from './facts.ts';
import { cause, counted, countedTo } from './text.ts';

/** Why a job is in its state, and what would change that: the main cause first. */
export function explainJob(facts: ExplainFacts, last: Attempt | undefined): Cause[] {
  const { job, place } = facts;
  if (isTerminal(job.state)) return ended(facts, last);
  if (isLeased(job.state)) return [...(last?.causes ?? []), ...cancelRequested(job)];
  if (isClaimed(job.state)) return claimed(facts);
  return place ? queuedCauses(facts, place) : [];
}

function ended({ job, result, events }: ExplainFacts, last: Attempt | undefined): Cause[] {
  const sinceMs = job.updatedAtMs;
  const why = result?.error ? `: ${result.error}` : '';
  const figures = { attempts: job.attempts, error: result?.error ?? null };
  const dead = job.deadLettered
    ? [
        cause('dead_lettered', `it is a dead letter of stream ${job.stream}; 'retry' requeues it`, {
          sinceMs,
          facts: { stream: job.stream },
        }),
      ]
    : [];
  const because = last?.causes ?? [];
  if (job.state === 'DONE')
    return [cause('done', `attempt ${job.attempts} succeeded`, { sinceMs, facts: figures }), ...because];
  if (job.state === 'TIMEOUT') {
    // A worker may report TIMEOUT, whatever attempts are left.
    const byWorker = last?.lease.state === 'RELEASED';
    const text = `it timed out at attempt ${job.attempts}${byWorker ? ', as its worker reported' : ', the last one'}${why}`;
    const code = byWorker ? 'failed' : 'attempts_exhausted';
    return [cause(code, text, { sinceMs, facts: figures }), ...because, ...dead];
  }
  const end = events.last.findLast(({ data }) => data.to === job.state) ?? events.first.at(-1);
  if (job.state === 'CANCELED') {
    const by = typeof end?.data.by === 'string' ? ` by ${end.data.by}` : '';
    const reason = typeof end?.data.reason === 'string' ? `: ${end.data.reason}` : '';
    return [cause('canceled', `it was canceled${by}${reason}`, { sinceMs, facts: figures }), ...because];
  }
  // A job that failed without a lease has lost too many claims.
  if (job.leaseId === null || last?.lease.endedAtMs == null || last.lease.requeued) {
    return [
      cause('claims_exhausted', `too many of its claims expired${why}`, { sinceMs, facts: figures }),
      ...dead,
    ];
  }
  return [
    cause('failed', `attempt ${job.attempts} failed${why}`, { sinceMs, facts: figures }),
    ...because,
    ...dead,
  ];
}

const cancelRequested = ({ cancelRequested, claimedBy }: Job): Cause[] =>
  cancelRequested
    ? [
        cause(
          'cancel_requested',
          `a client asked to cancel it; the answer to the next heartbeat of ${claimedBy} says so`,
          {
            facts: { worker_id: claimedBy },
          },
        ),
      ]
    : [];

function claimed(facts: ExplainFacts): Cause[] {
  const { job, nowMs } = facts;
  const { claimedBy, claimExpiresAtMs, state } = job;
  const left = (claimExpiresAtMs ?? nowMs) - nowMs;
  const times = {
    untilMs: claimExpiresAtMs,
    facts: { worker_id: claimedBy, claim_expires_at: iso(claimExpiresAtMs) },
  };
  const holds =
    left > 0
      ? cause(
          'claimed',
          `${claimedBy} has claimed it and has no lease yet; the claim expires in ${span(left)}`,
          times,
        )
      : cause(
          'claim_overdue',
          `the claim of ${claimedBy} expired ${span(-left)} ago; the server is about to requeue the job`,
          times,
        );
  return state === 'LEASE_PENDING' ? [...units(facts), holds] : [holds];
}

/** The missing units, and the leases that will free units next. */
function units({ job, capacity, endingSoon, nowMs }: QueuedFacts): Cause[] {
  const { usable, used, available, total, busyRating } = capacity;
  const missing = job.costUnits - available;
  const figures = {
    cost_units: job.costUnits,
    available,
    usable,
    used,
    total,
    busy_rating: busyRating,
    missing: Math.max(0, missing),
  };
  if (job.costUnits > total) {
    const text = `it needs ${counted(job.costUnits, 'unit')}, and the total is ${total.toLocaleString('en')}; only a higher total lets it start`;
    return [cause('costs_more_than_total', text, { facts: figures })];
  }
  if (missing <= 0) return [];
  const next = endingSoon.map(({ leaseId, workerId, costUnits, expiresAtMs }) => ({
    lease_id: leaseId,
    worker_id: workerId,
    cost_units: costUnits,
    expires_at: iso(expiresAtMs),
  }));
  const [soonest] = endingSoon;
  const then = soonest
    ? `; without a heartbeat, ${leaseOf(soonest)} expires next, in ${span(soonest.expiresAtMs - nowMs)}, with ${counted(soonest.costUnits, 'unit')}`
    : '';
  const text =
    job.costUnits > usable
      ? `it needs ${counted(job.costUnits, 'unit')}, and ${usable.toLocaleString('en')} of ${total.toLocaleString('en')} are usable with a busy rating of ${busyRating}; a lower busy rating lets it start`
      : `it needs ${counted(job.costUnits, 'unit')}, and ${available} of ${usable} are free (${used} used)${then}`;
  return [cause('waiting_for_units', text, { facts: { ...figures, ending_next: next } })];
}

const leaseOf = ({ workerId }: EndingLease): string =>
  workerId === null ? 'a lease' : `the lease of ${workerId}`;

/** The fields of a queued job that its causes depend on. */
export type QueuedJob = Pick<
  Job,
  | 'jobId'
  | 'jobType'
  | 'stream'
  | 'priority'
  | 'costUnits'
  | 'unique'
  | 'attempts'
  | 'nextRetryAtMs'
  | 'runAtMs'
>;

export type QueuedFacts = Pick<ExplainFacts, 'nowMs' | 'capacity' | 'endingSoon' | 'demand' | 'tenant'> & {
  job: QueuedJob;
};

/** What a queued job waits for: the main cause first. */
export const queuedCauses = (facts: QueuedFacts, place: QueuePosition): Cause[] => [
  ...tenantQuota(facts),
  ...otherCauses(facts, place),
];

/** Its tenant has no units left for it, whatever units are free. */
function tenantQuota({ job: { costUnits }, tenant }: QueuedFacts): Cause[] {
  if (!tenant || costUnits <= tenant.maxUnits - tenant.usedUnits) return [];
  const { addonId, maxUnits, usedUnits } = tenant;
  const text =
    `it needs ${counted(costUnits, 'unit')}, and ${addonId} uses ${usedUnits.toLocaleString('en')} ` +
    `of its quota of ${maxUnits.toLocaleString('en')}`;
  const figures = { cost_units: costUnits, addon_id: addonId, max_units: maxUnits, used_units: usedUnits };
  return [cause('tenant_quota', text, { facts: figures })];
}

function otherCauses(facts: QueuedFacts, place: QueuePosition): Cause[] {
  const { job, nowMs, demand } = facts;
  const notYet = delayed(job, nowMs);
  const needs = needsOf(job, place, demand);
  if (notYet) return [notYet, ...needs];
  if (place.isParked) {
    const [cost] = units(facts);
    const text =
      'it was set aside because it needed more units than the total; the server is about to requeue it';
    return [cost ?? cause('costs_more_than_total', text), ...needs];
  }
  const line = aheadOf(job, place);
  const cost = units(facts);
  // A job that costs more than the total becomes unschedulable when it reaches the head of the queue. Where
  // no job before it is for the same workers, the units keep it waiting, and the queue does not.
  const isTooMuch = cost.some(({ code }) => code === 'costs_more_than_total');
  // Neither free units nor progress of the queue would start the job.
  if ((demand === 'none' || demand === 'cannot_run') && !isTooMuch) {
    // Without the capability, neither free units nor another worker of the same kind would start the job.
    const lacking = demand === 'cannot_run' ? needs.filter(({ code }) => code === 'needs_capability') : [];
    const others = needs.filter((need) => !lacking.includes(need));
    return [...lacking, ...cost, notAsked(job, needs.length > 0), ...line, ...others];
  }
  if (!isTooMuch && place.aheadInLane > 0) return [...line, ...cost, ...needs];
  if (cost.length > 0) return [...cost, ...line, ...needs];
  // A worker that accepts any job is denied while the first job does not fit, so that a large job does not
  // starve.
  const headFits = place.head === null || place.head.costUnits <= facts.capacity.available;
  const worker = waitingForWorker(job, place, needs.length > 0);
  return headFits ? [worker, ...line, ...needs] : [...line, worker, ...needs];
}

/** What the workers that could take such a job ask for. */
const askedWords = ({ stream, jobType }: QueuedJob): string =>
  stream === null ? `jobs of type ${jobType}` : `stream ${stream}`;

function notAsked(job: QueuedJob, hasNeeds: boolean): Cause {
  const what = askedWords(job);
  const may = hasNeeds ? ` and may take this one` : '';
  return cause('waiting_for_worker', `no known worker asks for ${what}${may}`, {
    facts: { worker_known: false },
  });
}

function waitingForWorker(job: QueuedJob, { ahead }: QueuePosition, hasNeeds: boolean): Cause {
  if (ahead > 0)
    return cause(
      'waiting_for_worker',
      `enough units are free, and no job ahead is for the same workers: the next worker that asks for ${job.jobType} gets it`,
    );
  const who = hasNeeds ? 'worker that asks and may take it' : 'worker that asks';
  return cause(
    'waiting_for_worker',
    `it is the first in the queue and enough units are free: the next ${who} gets it`,
  );
}

function delayed({ nextRetryAtMs, runAtMs, attempts }: QueuedJob, nowMs: number): Cause | undefined {
  if (nextRetryAtMs === null || nextRetryAtMs <= nowMs) return undefined;
  const left = span(nextRetryAtMs - nowMs);
  const times = { untilMs: nextRetryAtMs, facts: { next_retry_at: iso(nextRetryAtMs) } };
  return nextRetryAtMs === runAtMs
    ? cause('run_at', `it must not start before ${iso(runAtMs)}, in ${left}`, times)
    : cause('backoff', `the backoff before attempt ${attempts + 1} ends in ${left}`, times);
}

const idOf = ({ jobId }: JobAhead): string => (jobId === null ? '' : `is ${jobId}, which `);

function aheadOf(job: QueuedJob, { ahead, aheadInLane, head, laneHead }: QueuePosition): Cause[] {
  if (ahead === 0) return [];
  const first = laneHead && laneHead.jobId !== job.jobId ? laneHead : head;
  const of = job.stream === null ? '' : ` of stream ${job.stream}`;
  const alike =
    aheadInLane === ahead
      ? ''
      : `, ${aheadInLane === 0 ? 'none' : countedTo(aheadInLane, aheadMax, 'job')} of them for the same workers`;
  const next = first ? `; the first${of} ${idOf(first)}needs ${counted(first.costUnits, 'unit')}` : '';
  const text = `${countedTo(ahead, aheadMax, 'job')}${of} ${ahead === 1 ? 'is' : 'are'} ahead of it${alike}${next}`;
  const headOf = (one: QueuePosition['head']) => one && { job_id: one.jobId, cost_units: one.costUnits };
  const isMore = ahead > aheadMax;
  const figures = {
    ahead: Math.min(ahead, aheadMax),
    ahead_in_lane: Math.min(aheadInLane, aheadMax),
    ahead_is_more: isMore,
    head: headOf(head),
    lane_head: headOf(laneHead),
    priority: job.priority,
  };
  return [cause('waiting_in_line', text, { facts: figures })];
}

/** The requirements of a job, whether or not a worker meets them. */
function needsOf(job: QueuedJob, { requires, heavy }: QueuePosition, demand: QueuedFacts['demand']): Cause[] {
  const wants = [
    ...requires.map((name) => `says ${name}_available: true`),
    ...heavy.map((name) => `does not say ${name}_heavy: false`),
  ].join(' and ');
  const isLacking = demand === 'cannot_run';
  const capability = isLacking
    ? `known workers ask for ${askedWords(job)}, but none that ${wants}`
    : `only for a worker that ${wants}`;
  return [
    ...(job.stream === null
      ? []
      : [
          cause('needs_stream_worker', `only workers that ask for stream ${job.stream} get it`, {
            facts: { stream: job.stream },
          }),
        ]),
    ...(wants === ''
      ? []
      : [
          cause('needs_capability', capability, {
            facts: {
              requires: [...requires],
              heavy: [...heavy],
              ...(isLacking ? { worker_known: false } : {}),
            },
          }),
        ]),
    ...(job.unique ? [cause('unique', 'only for a worker that holds no lease')] : []),
  ];
}
