import type { Job } from '../jobs/job.ts';
import type { Lease } from '../leases/lease.ts';
import { span } from '../time.ts';
import type { Attempt, Cause, ExplainFacts } from './facts.ts';
import { explainJob } from './job.ts';
import { explainAttempt } from './leases.ts';
import { allSigns } from './silences.ts';
import { type Step, timelineOf } from './timeline.ts';

/**
 * Why a job stands where it stands, told from what is stored of it. Everything here is pure: facts in, sentences and codes
 * out. The sentences are for people and may change; the codes are for programs and stay.
 */
export interface Explanation {
  nowMs: number;
  job: Job;
  lease: Lease | null;
  /** When the job came into the state it is in. */
  sinceMs: number;
  /** All of it in one sentence. */
  summary: string;
  causes: Cause[];
  steps: Step[];
  /** Steps in the middle that are not told, and after how many of those that are told they would stand. */
  stepsLeftOut: number;
  leftOutAfter: number;
  attempts: Attempt[];
  /** Older attempts that are not told. */
  attemptsLeftOut: number;
}

export function explain(facts: ExplainFacts): Explanation {
  const { nowMs, job, lease, events } = facts;
  const attemptOf = (each: Lease): Attempt => {
    const signs = allSigns(each, job, facts.signs.get(each.leaseId), nowMs);
    return { lease: each, signs, causes: explainAttempt(each, signs, facts) };
  };
  const attempts = facts.attempts.map(attemptOf);
  const all = [...events.first, ...events.last];
  const sinceMs = all.findLast(({ data }) => data.to === job.state && data.from !== job.state)?.tsMs;
  const since = sinceMs ?? job.updatedAtMs;
  const asked = lease && (attempts.find((each) => each.lease.leaseId === lease.leaseId) ?? attemptOf(lease));
  const causes = asked?.causes ?? explainJob(facts, attempts.at(-1));
  const { steps, leftOutAfter } = timelineOf(facts, attempts);
  return {
    nowMs,
    job,
    lease,
    sinceMs: since,
    summary: asked ? leaseSummary(asked, nowMs) : jobSummary(job, since, causes, nowMs),
    causes,
    steps,
    stepsLeftOut: events.leftOut,
    leftOutAfter,
    attempts,
    attemptsLeftOut: lease ? 0 : Math.max(0, job.attempts - attempts.length),
  };
}

function jobSummary(job: Job, sinceMs: number, [main]: readonly Cause[], nowMs: number): string {
  const words = `Job ${job.jobId} is ${job.state}, for ${span(nowMs - sinceMs)}`;
  return main ? `${words}: ${main.text}` : `${words}.`;
}

function leaseSummary({ lease, causes: [main] }: Attempt, nowMs: number): string {
  const sinceMs = lease.endedAtMs ?? lease.grantedAtMs;
  const words = `Lease ${lease.leaseId} is ${lease.state}, for ${span(nowMs - sinceMs)}`;
  return main ? `${words}: ${main.text}` : `${words}.`;
}
