/** Explanations of a job's or a lease's state: routes besides the queue contract's, with its field names. */
import type { Engine } from '../../engine/engine.ts';
import type { Route } from '../http/router.ts';
import { jobId } from '../jobs/routes.ts';
import { explainAbout } from './docs.ts';
import { explanationBody } from './schemas.ts';

export const explainRoutes = ({ jobs, leases }: Engine): Route[] => [
  {
    method: 'GET',
    path: '/api/scheduler/jobs/{job_id}/explain',
    about: explainAbout.explainJob,
    async handle({ path, caller }) {
      return { status: 200, body: explanationBody(await jobs.explain(jobId(path), caller)) };
    },
  },
  {
    method: 'GET',
    path: '/api/scheduler/lease/{lease_id}/explain',
    about: explainAbout.explainLease,
    async handle({ path, caller }) {
      return {
        status: 200,
        body: explanationBody(await leases.explain(path.lease_id ?? '', caller)),
      };
    },
  },
];
