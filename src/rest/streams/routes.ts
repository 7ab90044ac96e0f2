/** Routes for streams besides the worker contract, with the queue contract's field names. */

import { parse } from '../../domain/requests/parsers.ts';
import { ListStreams } from '../../domain/requests/scheduler.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { Route } from '../http/router.ts';
import { jobId } from '../jobs/routes.ts';
import { AttemptsQuery, streamAbout } from './docs.ts';
import { attempt, streamDepth } from './schemas.ts';

const base = '/api/scheduler';

export const streamRoutes = ({ jobs, leases }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/streams`,
    about: streamAbout.listStreams,
    async handle({ query, caller }) {
      const page = fromQuery(ListStreams, parse.listStreams, query);
      const { items, nextCursor } = await jobs.streams(page, caller);
      return { status: 200, body: { streams: items.map(streamDepth), next_cursor: nextCursor } };
    },
  },
  {
    method: 'GET',
    path: `${base}/jobs/{job_id}/attempts`,
    about: streamAbout.listAttempts,
    async handle({ path, query, caller }) {
      const page = fromQuery(AttemptsQuery, parse.listLeases, query);
      const { job } = await jobs.get(jobId(path), caller);
      const { items, nextCursor } = await leases.list({ ...page, job_id: job.jobId }, caller);
      return { status: 200, body: { attempts: items.map(attempt), next_cursor: nextCursor } };
    },
  },
  {
    method: 'POST',
    path: `${base}/jobs/retry`,
    about: streamAbout.retryDeadLetters,
    async handle({ body, caller }) {
      const jobIds = await jobs.retryDeadLetters(parse.retryJobs(body), caller);
      return { status: 200, body: { retried: jobIds.length, job_ids: jobIds } };
    },
  },
];
