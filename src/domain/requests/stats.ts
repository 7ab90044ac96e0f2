import Type, { type Static } from 'typebox';
import { limits } from '../limits.ts';
import { bucketWords, metricNames } from '../stats/series.ts';
import { cursorOf, name, optional, pageSize } from './scheduler.ts';

/**
 * Requests for statistics. `planSeries` checks how long a range may be, because it knows which bucket would
 * fit.
 */

const addonId = () => optional(name('Only what is of this submitter.'));

export const GetSnapshot = Type.Object({ addon_id: addonId() });
export type GetSnapshot = Static<typeof GetSnapshot>;

/** 1h to 30d, in each unit. */
const rangePattern =
  '^((6[0-9]|[7-9][0-9]|[1-9][0-9]{2,3}|[1-3][0-9]{4}|4[0-2][0-9]{3}|43[01][0-9]{2}|43200)m|([1-9]|[1-9][0-9]|[1-6][0-9]{2}|7[01][0-9]|720)h|([1-9]|[12][0-9]|30)d)$';

export const GetTimeseries = Type.Object({
  metric: Type.Enum(metricNames, { description: 'The metric.' }),
  bucket: optional(
    Type.Enum([...bucketWords], { description: 'The width of each point; the default is 5m.' }),
  ),
  range: optional(
    Type.String({
      maxLength: 20,
      described: { pattern: rangePattern },
      description: 'How far back: a whole number of m, h or d from 1h to 30d; the default is 24h.',
    }),
  ),
  addon_id: addonId(),
});
export type GetTimeseries = Static<typeof GetTimeseries>;

/** Bounds of the interval between two snapshots of a stream. */
export const watchMs = { min: 200, default: 1_000, max: 60_000 } as const;

export const WatchSnapshots = Type.Object({
  addon_id: addonId(),
  interval_ms: optional(
    Type.Integer({
      minimum: watchMs.min,
      maximum: watchMs.max,
      description: `The time from one snapshot to the next; the default is ${watchMs.default}.`,
    }),
  ),
});
export type WatchSnapshots = Static<typeof WatchSnapshots>;

export const ListWorkers = Type.Object({
  worker_id: optional(name('Only this worker.')),
  stream: optional(name('Only workers that ask for this stream.')),
  job_type: optional(name('Only workers that ask for this job type, or for all types.')),
  limit: optional(pageSize(limits.pageRows, limits.pageRowsDefault, 'How many workers at the most.')),
  cursor: optional(cursorOf(limits.nameChars)),
});
export type ListWorkers = Static<typeof ListWorkers>;

export const GetQueue = Type.Object({
  limit: optional(pageSize(limits.queueGroups, limits.queueGroupsDefault, 'How many groups at the most.')),
  cursor: optional(cursorOf(20, { pattern: '^[0-9]{1,9}$' })),
});
export type GetQueue = Static<typeof GetQueue>;
