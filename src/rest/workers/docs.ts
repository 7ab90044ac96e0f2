import Type from 'typebox';
import { ListWorkers } from '../../domain/requests/stats.ts';
import { answer, operations } from '../openapi/operation.ts';
import { list, nextCursor } from '../openapi/schema-types.ts';
import { WorkerBody } from './schemas.ts';

/** Documentation of the list of workers. */
export const workersAbout = operations('Queue: stats', {
  listWorkers: {
    summary: 'List the workers that are known or hold jobs',
    details:
      'Workers that are connected to any server on the database, wait at it or called it in the last 30 seconds, by ' +
      'name. Servers refresh what they know every 10 seconds; a worker that is gone leaves the list within 30 seconds.',
    query: ListWorkers,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ workers: list(WorkerBody, 'The workers.'), next_cursor: nextCursor }),
        {
          workers: [
            {
              worker_id: 'worker-1',
              last_heard_at: '2025-12-28T20:17:05.000Z',
              active_leases: 2,
              claims: 0,
              servers: [
                {
                  server_id: '019b6643-5a3e-7000-8000-8d3c5f0f7f11',
                  host: 'queue-1',
                  pid: 4242,
                  peer: '10.0.0.7:40112',
                  connections: ['WORK_STREAM'],
                  since: '2025-12-28T20:01:00.000Z',
                  last_heard_at: '2025-12-28T20:17:05.000Z',
                  slots: 3,
                  asks: [
                    {
                      streams: ['mails'],
                      accept_job_types: [],
                      addon_id: null,
                      max_units: null,
                      constraints_capabilities: { gpu_available: true },
                      jobs: 3,
                      truncated: false,
                    },
                  ],
                  asks_truncated: false,
                },
              ],
            },
          ],
          next_cursor: null,
        },
      ),
    },
    errors: [],
  },
});
