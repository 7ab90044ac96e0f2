/** Waiting and running jobs: a route besides the contracts, with the queue contract's field names. */
import Type, { type Static } from 'typebox';
import { causeCodes } from '../../domain/explain/facts.ts';
import { priorities } from '../../domain/jobs/job.ts';
import type { QueueGroup } from '../../domain/queue/queue-group.ts';
import { parse } from '../../domain/requests/parsers.ts';
import { GetQueue } from '../../domain/requests/stats.ts';
import { iso } from '../../domain/time.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { Route } from '../http/router.ts';
import { answer, operations } from '../openapi/operation.ts';
import {
  count,
  entity,
  flag,
  list,
  nextCursor,
  oneOf,
  orNull,
  time,
  uuid,
  word,
} from '../openapi/schema-types.ts';

const oldestWords =
  'The job of a group that has been ready for longest. Where none is ready, one that was put aside because it costs more than the total.';

const OldestJob = entity('QueuedJob', oldestWords, {
  job_id: uuid('The job.'),
  priority: oneOf([...priorities], 'Which jobs go first.'),
  cost_units: count('Its weight, in units of capacity.'),
  ready_since: time('Since when it could have been leased, had there been units for it.'),
  cause: orNull(
    entity('QueuedCause', 'Why it waits: the main cause that `explain` gives.', {
      code: oneOf(causeCodes, 'Which it is; codes stay.'),
      text: word('The same in a sentence.'),
    }),
  ),
});

const Group = entity('QueueGroup', 'Jobs that the same workers may take, and that have not ended.', {
  stream: orNull(word('Their stream; null for jobs without one.')),
  addon_id: word('Who submitted them.'),
  job_type: word('What kind of work they are.'),
  requires: list(word('`gpu` for `gpu_required`.'), 'What they require.'),
  heavy: list(word('`cpu` for `cpu_heavy`.'), 'What they are heavy on.'),
  unique: flag('They are not for a worker that already holds a lease.'),
  ready: count('Jobs that may be leased now, counted up to 1,000.'),
  delayed: count('Jobs that wait for a backoff, for a time to start, or for more capacity.'),
  claimed: count('Jobs that are claimed and not leased.'),
  running: count('Jobs that are leased.'),
  next_ready_at: orNull(time('When the next of those that wait for a backoff or a time becomes ready.')),
  workers: orNull(
    count('Known workers that ask for jobs like the oldest one; null where there are too many to compare.'),
  ),
  slots: orNull(count('Jobs like it that they would take now.')),
  oldest: orNull(OldestJob),
});

const QueueBody = Type.Object({
  ts: time('When it was read.'),
  groups: list(Group, 'The groups, in an order that stays.'),
  truncated: flag('More than 10,000 jobs are delayed, claimed or running; those due last are not counted.'),
  next_cursor: nextCursor,
});

const groupBody = ({ oldest, asking, ...group }: QueueGroup): Static<typeof Group> => ({
  stream: group.stream,
  addon_id: group.addonId,
  job_type: group.jobType,
  requires: group.requires,
  heavy: group.heavy,
  unique: group.isUnique,
  ready: group.ready,
  delayed: group.delayed,
  claimed: group.claimed,
  running: group.running,
  next_ready_at: group.nextReadyAtMs === null ? null : iso(group.nextReadyAtMs),
  workers: asking?.workers ?? null,
  slots: asking?.slots ?? null,
  oldest: oldest && {
    job_id: oldest.jobId,
    priority: oldest.priority,
    cost_units: oldest.costUnits,
    ready_since: iso(oldest.readySinceMs),
    cause: oldest.cause && { code: oldest.cause.code, text: oldest.cause.text },
  },
});

const about = operations('Queue: stats', {
  getQueue: {
    summary: 'List groups of waiting and running jobs, with their workers and causes',
    details:
      'In groups of jobs that the same workers may take. A page costs the same however many jobs wait.',
    query: GetQueue,
    answers: {
      200: answer('A page of it.', QueueBody, {
        ts: '2025-12-28T20:17:05.000Z',
        groups: [
          {
            stream: null,
            addon_id: 'lab',
            job_type: 'train',
            requires: ['gpu'],
            heavy: [],
            unique: false,
            ready: 3,
            delayed: 0,
            claimed: 0,
            running: 0,
            next_ready_at: null,
            workers: 0,
            slots: 0,
            oldest: {
              job_id: '019b6643-5a3e-7000-8000-8d3c5f0f7f11',
              priority: 'NORMAL',
              cost_units: 10,
              ready_since: '2025-12-28T19:46:05.000Z',
              cause: {
                code: 'waiting_for_worker',
                text: 'no worker that is connected, waits or called lately asks for jobs of type train',
              },
            },
          },
        ],
        truncated: false,
        next_cursor: null,
      }),
    },
    errors: [],
  },
});

export const queueViewRoutes = ({ queue }: Engine): Route[] => [
  {
    method: 'GET',
    path: '/api/scheduler/stats/queue',
    about: about.getQueue,
    async handle({ query, caller }) {
      const { items, nextCursor, nowMs, isCut } = await queue.get(
        fromQuery(GetQueue, parse.getQueue, query),
        caller,
      );
      return {
        status: 200,
        body: {
          ts: iso(Math.floor(nowMs)),
          groups: items.map(groupBody),
          truncated: isCut,
          next_cursor: nextCursor,
        },
      };
    },
  },
];
