import Type from 'typebox';
import { ListLeases, ListStreams, RetryJobs } from '../../domain/requests/scheduler.ts';
import { lease } from '../openapi/examples.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { count, list, nextCursor } from '../openapi/schema-types.ts';
import { Attempt, Stream } from './schemas.ts';

const { limit, cursor } = ListLeases.properties;
export const AttemptsQuery = Type.Object({ limit, cursor });

/** Documentation of streams and attempts. */
export const streamAbout = operations('Queue: jobs', {
  listStreams: {
    summary: 'List the streams and the numbers of their jobs',
    query: ListStreams,
    answers: {
      200: answer(
        'A page of them by name, or the one.',
        Type.Object({ streams: list(Stream, 'The streams.'), next_cursor: nextCursor }),
        {
          streams: [{ stream: 'mails', queued: 4, delayed: 1, running: 2, dead_lettered: 0 }],
          next_cursor: null,
        },
      ),
    },
    errors: [],
  },
  listAttempts: {
    summary: 'List the attempts of a job, the newest first',
    query: AttemptsQuery,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ attempts: list(Attempt, 'The attempts.'), next_cursor: nextCursor }),
        { attempts: [{ attempt_id: lease.lease_id, ...lease }], next_cursor: null },
      ),
    },
    errors: ['job_not_found'],
  },
  retryDeadLetters: {
    summary: 'Retry dead letters',
    body: requestBody(RetryJobs, {
      stream: 'mails',
      error_code: 'E_ADDRESS',
      reason: 'the mailbox is there now',
    }),
    answers: {
      200: answer(
        'Those that are queued again.',
        Type.Object({
          retried: count('How many they are.'),
          job_ids: list(Type.String({ format: 'uuid' }), 'Which they are.'),
        }),
        { retried: 1, job_ids: [lease.job_id] },
      ),
    },
    errors: [],
  },
});
