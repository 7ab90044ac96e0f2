import { SetCapacity } from '../domain/commands.ts';
import { GetSnapshot, GetTimeseries } from '../domain/stats-commands.ts';
import { answer, ask, operations } from './about.ts';
import { SnapshotBody, TimeseriesBody, Units } from './stats-words.ts';

const capacity = { total: 100, busy_rating: 3, usable: 70, used: 60, available: 10, reserved: 0 };

/** What the queue contract's Stats API says of itself. */
export const statsAbout = operations('Queue: stats', {
  getCapacity: {
    summary: 'Read the capacity',
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
  setCapacity: {
    summary: 'Change the capacity',
    details: 'The total, the busy rating, or both. What is stored then wins over the setting.',
    body: ask(SetCapacity, { total: 100, busy_rating: 3 }, { busy_rating: 0 }),
    answers: { 200: answer('Units, and what of them is taken.', Units, capacity) },
    errors: [],
  },
  getSnapshot: {
    summary: 'How things stand',
    details: 'Everything that was committed before is in it.',
    query: GetSnapshot,
    answers: {
      200: answer('How things stand.', SnapshotBody, {
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
    summary: 'How one figure went',
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
