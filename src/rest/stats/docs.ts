import Type from 'typebox';
import { ListCapacityChanges, SetCapacity } from '../../domain/requests/scheduler.ts';
import { GetSnapshot, GetTimeseries } from '../../domain/requests/stats.ts';
import { answer, operations, requestBody } from '../openapi/operation.ts';
import { list, nextCursor } from '../openapi/schema-types.ts';
import { CapacityChangeBody, SnapshotBody, TimeseriesBody, Units } from './schemas.ts';

const capacity = { total: 100, busy_rating: 3, usable: 70, used: 60, available: 10, reserved: 0 };

/** Documentation of the queue contract's Stats API. */
export const statsAbout = operations('Queue: stats', {
  getCapacity: {
    summary: 'Read the capacity',
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
  setCapacity: {
    summary: 'Change the capacity',
    details: 'The total, the busy rating, or both. What is stored then wins over the setting.',
    body: requestBody(
      SetCapacity,
      { total: 100, busy_rating: 3 },
      { total: 0, requested_by: 'ann', reason: 'maintenance' },
    ),
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
  listCapacityChanges: {
    summary: 'List the changes of the capacity, the newest first',
    details: 'Changes are kept for as long as the history of jobs.',
    query: ListCapacityChanges,
    answers: {
      200: answer(
        'A page of them.',
        Type.Object({ changes: list(CapacityChangeBody, 'The changes.'), next_cursor: nextCursor }),
        {
          changes: [
            {
              change_id: 7,
              ts: '2025-12-28T02:10:00.000Z',
              requested_by: 'ann',
              reason: 'maintenance',
              total_before: 100,
              total_after: 0,
              busy_rating_before: 3,
              busy_rating_after: 3,
            },
          ],
          next_cursor: null,
        },
      ),
    },
    errors: [],
  },
  getSnapshot: {
    summary: 'Read the numbers of jobs, leases and units',
    details: 'Everything that was committed before is in it.',
    query: GetSnapshot,
    answers: {
      200: answer('A snapshot.', SnapshotBody, {
        ts: '2025-12-28T20:17:05.000Z',
        addon_id: null,
        capacity,
        jobs: {
          queued: 4,
          claimed: 0,
          running: 2,
          submitted_last_24h: 120,
          done_last_24h: 112,
          failed_last_24h: 1,
          canceled_last_24h: 1,
          timeout_last_24h: 0,
        },
        leases: { active: 2, granted_last_24h: 116, expired_last_24h: 0 },
      }),
    },
    errors: [],
  },
  getTimeseries: {
    summary: 'Read one metric over time',
    details: 'At most 2,000 points, evenly spaced on the bucket, in UTC.',
    query: GetTimeseries,
    answers: {
      200: answer('The points, the oldest first.', TimeseriesBody, {
        metric: 'leases_active',
        bucket: '5m',
        addon_id: null,
        points: [
          { ts: '2025-12-28T00:00:00.000Z', value: 1 },
          { ts: '2025-12-28T00:05:00.000Z', value: 2 },
        ],
      }),
    },
    errors: [],
  },
});
