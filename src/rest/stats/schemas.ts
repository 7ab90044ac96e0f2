/** Figures with the queue contract's field names. */
import Type, { type Static } from 'typebox';
import type { CapacityChange } from '../../domain/leases/capacity.ts';
import type { Capacity } from '../../domain/leases/lease.ts';
import { bucketWords, metricNames, type Snapshot, type Timeseries } from '../../domain/stats/series.ts';
import { iso } from '../../domain/time.ts';
import { count, entity, list, oneOf, orNull, time, whole, word } from '../openapi/schema-types.ts';

export const Units = entity('Capacity', 'Units of capacity, and what of them is taken.', {
  total: count('All units there are.'),
  busy_rating: count('How busy the machines are with other things, from 0 to 10.'),
  usable: count('What the busy rating leaves of them.'),
  used: count('What active leases take.'),
  available: whole('What is left. Below zero where less is usable than is used.'),
  reserved: count('What claimed jobs would take.'),
});

export const units = (capacity: Capacity): Static<typeof Units> => ({
  total: capacity.total,
  busy_rating: capacity.busyRating,
  usable: capacity.usable,
  used: capacity.used,
  available: capacity.available,
  reserved: capacity.reserved,
});

export const CapacityChangeBody = entity('CapacityChange', 'A change of the capacity.', {
  change_id: whole('Rises from change to change.'),
  ts: time('When it was made.'),
  requested_by: word("Who asked for it: `requested_by` of the request, or the caller's address."),
  reason: orNull(word('Why, as the request said.')),
  total_before: count('All units, before it.'),
  total_after: count('All units, after it.'),
  busy_rating_before: count('The busy rating, before it.'),
  busy_rating_after: count('The busy rating, after it.'),
});

export const capacityChange = (change: CapacityChange): Static<typeof CapacityChangeBody> => ({
  change_id: Number(change.changeId),
  ts: iso(change.atMs),
  requested_by: change.requestedBy,
  reason: change.reason,
  total_before: change.before.total,
  total_after: change.after.total,
  busy_rating_before: change.before.busyRating,
  busy_rating_after: change.after.busyRating,
});

const addonId = orNull(word('Whose figures these are; null for those of all submitters.'));

export const SnapshotBody = Type.Object({
  ts: time('The time of the answer.'),
  addon_id: addonId,
  capacity: Units,
  jobs: entity('SnapshotJobs', 'How many jobs there are, and how many there were of late.', {
    queued: count('Jobs that wait.'),
    claimed: count('Jobs that are claimed and not leased yet.'),
    running: count('Jobs that are leased.'),
    submitted_last_24h: count('Submitted in the last 24 hours, to the minute.'),
    done_last_24h: count('Done in that time.'),
    failed_last_24h: count(
      'Jobs that failed in that time and are FAILED now; one that was retried counts once at most.',
    ),
    canceled_last_24h: count('Canceled in that time.'),
    timeout_last_24h: count('Timed out in that time.'),
  }),
  leases: entity('SnapshotLeases', 'How many leases there are, and how many there were of late.', {
    active: count('Leases that hold.'),
    granted_last_24h: count('Granted in that time.'),
    expired_last_24h: count('Expired in that time.'),
  }),
});

export const snapshotBody = ({
  tsMs,
  capacity,
  jobs,
  leases,
  last24h,
  ...of
}: Snapshot): Static<typeof SnapshotBody> => ({
  ts: iso(tsMs),
  addon_id: of.addonId,
  capacity: units(capacity),
  jobs: {
    queued: jobs.queued,
    claimed: jobs.claimed,
    running: jobs.running,
    submitted_last_24h: last24h.submitted,
    done_last_24h: last24h.done,
    failed_last_24h: last24h.failed,
    canceled_last_24h: last24h.canceled,
    timeout_last_24h: last24h.timeouts,
  },
  leases: {
    active: leases.active,
    granted_last_24h: last24h.granted,
    expired_last_24h: last24h.expired,
  },
});

export const TimeseriesBody = Type.Object({
  metric: oneOf(metricNames, 'The metric.'),
  bucket: oneOf([...bucketWords], 'How wide each point is.'),
  addon_id: addonId,
  points: list(
    entity('Point', 'A figure and its time.', {
      ts: time('Where its bucket begins.'),
      value: orNull(
        Type.Number({
          description: 'A sum, the last value, or a percentile of the bucket; null where nothing is known.',
        }),
      ),
    }),
    'Evenly spaced, the last one being the present bucket as it stands so far.',
  ),
});

export const timeseriesBody = ({
  metric,
  bucket,
  addonId: of,
  points,
}: Timeseries): Static<typeof TimeseriesBody> => ({
  metric,
  bucket,
  addon_id: of,
  points: points.map(({ tsMs, value }) => ({ ts: iso(tsMs), value })),
});
