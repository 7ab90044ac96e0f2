/**
 * What an observer without the right to payloads sees of jobs, leases and their history: no payload, no
 * result, no metrics and no error. Reasons of events are left out too, because they repeat errors.
 */
import type { Principal } from '../../domain/access/principal.ts';
import type { ExplainFacts } from '../../domain/explain/facts.ts';
import type { Job, JobEvent, JobResult, JobWithResult } from '../../domain/jobs/job.ts';
import type { Lease } from '../../domain/leases/lease.ts';

const seesEverything = ({ roles, seesPayloads }: Principal): boolean =>
  seesPayloads || roles.some((role) => role !== 'observer');

const withoutContent = {
  job: <Shown extends Job>(job: Shown): Shown => ({ ...job, payload: {} }),
  lease: <Shown extends Lease>(lease: Shown): Shown => ({ ...lease, error: null, errorDetail: null }),
  event: (event: JobEvent): JobEvent => {
    const { reason: _, code: __, previous: ___, ...data } = event.data;
    return { ...event, data };
  },
};

export const shownJob = <Shown extends Job>(principal: Principal, job: Shown): Shown =>
  seesEverything(principal) ? job : withoutContent.job(job);

export const shownLease = <Shown extends Lease>(principal: Principal, lease: Shown): Shown =>
  seesEverything(principal) ? lease : withoutContent.lease(lease);

export const shownEvents = (principal: Principal, events: readonly JobEvent[]): JobEvent[] =>
  seesEverything(principal) ? [...events] : events.map(withoutContent.event);

export const shownResult = <Found extends JobWithResult>(principal: Principal, found: Found): Found =>
  seesEverything(principal) ? found : { ...found, job: withoutContent.job(found.job), result: null };

export function shownFacts<
  Facts extends Pick<ExplainFacts, 'job' | 'result' | 'lease' | 'events' | 'attempts'>,
>(principal: Principal, facts: Facts): Facts {
  if (seesEverything(principal)) return facts;
  const { job, result, lease, events, attempts } = facts;
  return {
    ...facts,
    job: withoutContent.job(job),
    result: result && withoutErrors(result),
    lease: lease && withoutContent.lease(lease),
    attempts: attempts.map(withoutContent.lease),
    events: {
      ...events,
      first: events.first.map(withoutContent.event),
      last: events.last.map(withoutContent.event),
    },
  };
}

const withoutErrors = (result: JobResult): JobResult => ({
  ...result,
  resultData: null,
  error: null,
  errorDetail: null,
  metrics: null,
});
