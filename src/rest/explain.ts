/** Why a job or a lease stands where it stands, beside the queue contract's routes and in its words. */
import type { Explanation } from '../domain/explain.ts';
import type { Cause } from '../domain/explain-facts.ts';
import type { Step } from '../domain/explain-steps.ts';
import { iso } from '../domain/times.ts';
import type { Engine } from '../engine/engine.ts';
import { jobId, jobIntent } from './queue.ts';
import { leaseRecord } from './queue-leases.ts';
import type { Route } from './router.ts';

export const explainRoutes = ({ explainer }: Engine): Route[] => [
  {
    method: 'GET',
    path: '/api/scheduler/jobs/{job_id}/explain',
    async handle({ path, caller }) {
      return { status: 200, body: explanationBody(await explainer.explainJob(jobId(path), caller)) };
    },
  },
  {
    method: 'GET',
    path: '/api/scheduler/lease/{lease_id}/explain',
    async handle({ path, caller }) {
      return {
        status: 200,
        body: explanationBody(await explainer.explainLease(path.lease_id ?? '', caller)),
      };
    },
  },
];

function explanationBody(explanation: Explanation) {
  // A payload may be a megabyte, and explains nothing.
  const { payload: _, ...job } = jobIntent(explanation.job);
  return {
    ts: iso(explanation.nowMs),
    job,
    lease: explanation.lease && leaseRecord(explanation.lease),
    since: iso(explanation.sinceMs),
    summary: explanation.summary,
    causes: explanation.causes.map(causeBody),
    steps: explanation.steps.map(stepBody),
    steps_left_out: explanation.stepsLeftOut,
    left_out_after: explanation.leftOutAfter,
    attempts: explanation.attempts.map(({ lease, causes }) => ({
      attempt_id: lease.leaseId,
      ...leaseRecord(lease),
      causes: causes.map(causeBody),
    })),
    attempts_left_out: explanation.attemptsLeftOut,
  };
}

const causeBody = ({ code, text, sinceMs, untilMs, facts }: Cause) => ({
  code,
  text,
  since: iso(sinceMs),
  until: iso(untilMs),
  facts,
});

const stepBody = ({ kind, tsMs, untilMs, type, eventId, by, leaseId, text, times }: Step) => ({
  kind,
  ts: iso(tsMs),
  until: iso(untilMs),
  type,
  event_id: eventId,
  by,
  lease_id: leaseId,
  text,
  times,
});
