/** The queue contract's Jobs API, `/api/scheduler/jobs`: its paths, field names and statuses. */

import { parse } from '../../domain/requests/parsers.ts';
import { ListJobEvents, ListJobsQuery } from '../../domain/requests/scheduler.ts';
import type { Engine } from '../../engine/engine.ts';
import { draft } from '../../engine/jobs/submitter.ts';
import { fromQuery } from '../http/query.ts';
import type { RestRequest, Route } from '../http/router.ts';
import { queueAbout } from './docs.ts';
import { jobEvent, jobIntent, jobResult } from './schemas.ts';

export function queueRoutes({ jobs, settings }: Engine): Route[] {
  const base = '/api/scheduler/jobs';
  return [
    {
      method: 'POST',
      path: `${base}/submit`,
      about: queueAbout.submitJob,
      async handle({ body, caller }) {
        const { job } = await jobs.submit(draft(parse.submitJob(body), false, settings), caller);
        return { status: 201, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${base}/claim`,
      about: queueAbout.claimJobs,
      async handle({ body, caller }) {
        const command = parse.claimJobs(body);
        const claimed = (await jobs.claim(command, caller)).map(jobIntent);
        if (claimed.length === 0) return { status: 204 };
        const all = (command.limit ?? 1) > 1 ? { jobs: claimed } : {};
        return { status: 200, body: { job: claimed[0], ...all } };
      },
    },
    {
      method: 'GET',
      path: base,
      about: queueAbout.listJobs,
      async handle({ query, caller }) {
        const { state, ...filters } = fromQuery(ListJobsQuery, parse.listJobsQuery, query);
        const { items, nextCursor } = await jobs.list({ ...filters, states: state }, caller);
        return { status: 200, body: { jobs: items.map(jobIntent), next_cursor: nextCursor } };
      },
    },
    {
      method: 'GET',
      path: `${base}/{job_id}`,
      about: queueAbout.getJob,
      async handle({ path, caller }) {
        const { job, result } = await jobs.get(jobId(path), caller);
        return { status: 200, body: { job: jobIntent(job), result: result && jobResult(result) } };
      },
    },
    {
      method: 'POST',
      path: `${base}/{job_id}/status`,
      about: queueAbout.updateJobStatus,
      async handle({ path, body, caller }) {
        const job = await jobs.updateStatus(jobId(path), parse.updateJobStatus(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${base}/{job_id}/cancel`,
      about: queueAbout.cancelJob,
      async handle({ path, body, caller }) {
        const job = await jobs.cancel(jobId(path), parse.operatorRequest(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'POST',
      path: `${base}/{job_id}/retry`,
      about: queueAbout.retryJob,
      async handle({ path, body, caller }) {
        const job = await jobs.retry(jobId(path), parse.operatorRequest(body), caller);
        return { status: 200, body: { job: jobIntent(job) } };
      },
    },
    {
      method: 'GET',
      path: `${base}/{job_id}/events`,
      about: queueAbout.listJobEvents,
      async handle({ path, query, caller }) {
        const command = fromQuery(ListJobEvents, parse.listJobEvents, query);
        const { items, nextCursor } = await jobs.events(jobId(path), command, caller);
        return { status: 200, body: { events: items.map(jobEvent), next_cursor: nextCursor } };
      },
    },
  ];
}

export const jobId = (path: RestRequest['path']): string => path.job_id ?? '';
