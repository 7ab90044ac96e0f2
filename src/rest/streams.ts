/** What Leasehold has for streams beside the worker contract, in the queue contract's words. */
import { parse } from '../domain/parsers.ts';
import type { Engine } from '../engine/engine.ts';
import type { StreamDepth } from '../store/statements/streams.ts';
import { jobId, wholeIn } from './queue.ts';
import { leaseRecord } from './queue-leases.ts';
import type { Route } from './router.ts';

const base = '/api/scheduler';

export const streamRoutes = ({ reader, leaseReader, changer }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/streams`,
    async handle({ query, caller }) {
      const depths = await reader.streams(query.get('stream') || null, caller);
      return { status: 200, body: { streams: depths.map(streamDepth) } };
    },
  },
  {
    method: 'GET',
    path: `${base}/jobs/{job_id}/attempts`,
    async handle({ path, query, caller }) {
      const { job } = await reader.get(jobId(path), caller);
      const command = parse.listLeases({
        job_id: job.jobId,
        limit: wholeIn(query, 'limit'),
        cursor: query.get('cursor'),
      });
      const { items, nextCursor } = await leaseReader.list(command, caller);
      const attempts = items.map((lease) => ({ attempt_id: lease.leaseId, ...leaseRecord(lease) }));
      return { status: 200, body: { attempts, next_cursor: nextCursor } };
    },
  },
  {
    method: 'POST',
    path: `${base}/jobs/retry`,
    async handle({ body, caller }) {
      const jobIds = await changer.retryDeadLetters(parse.retryJobs(body), caller);
      return { status: 200, body: { retried: jobIds.length, job_ids: jobIds } };
    },
  },
];

const streamDepth = ({ stream, queued, delayed, running, deadLettered }: StreamDepth) => ({
  stream,
  queued,
  delayed,
  running,
  dead_lettered: deadLettered,
});
