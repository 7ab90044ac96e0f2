import type { Job } from '../jobs/job.ts';
import type { Lease } from '../leases/lease.ts';
import type { Attempt, Cause, ExplainFacts } from './facts.ts';
import { explainJob } from './job.ts';
import { explainAttempt } from './leases.ts';
import { allSigns } from './silences.ts';
import { jobSummary, leaseSummary } from './summary.ts';
import { type Step, timelineOf } from './timeline.ts';

/**
 * Why a job is in its state, derived from what is stored of it. Everything here is pure: facts in, sentences
 * and codes out. Sentences are for people and may change; codes are for programs and are stable.
 */
export interface Explanation {
  nowMs: number;
  job: Job;
  lease: Lease | null;
  /** When the job entered its state. */
  sinceMs: number;
  /** The answer in one plain sentence, such as `Waiting: needs 30 units, 12 are free; 3 jobs ahead`. */
  summary: string;
  causes: Cause[];
  steps: Step[];
  /** Steps that are left out in the middle, and the number of shown steps that precede them. */
  stepsLeftOut: number;
  leftOutAfter: number;
  attempts: Attempt[];
  /** Older attempts that are left out. */
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
    summary: asked ? leaseSummary(asked) : jobSummary(job, causes),
    causes,
    steps,
    stepsLeftOut: events.leftOut,
    leftOutAfter,
    attempts,
    attemptsLeftOut: lease ? 0 : Math.max(0, job.attempts - attempts.length),
  };
}
