import Type, { type Static } from 'typebox';
import { name, optional } from './commands.ts';
import { bucketWords, metricNames } from './stats.ts';

/** What may be asked of the figures. How long a range may be is said by `planSeries`, which knows what would fit. */

const addonId = () => optional(name('Only what is of this submitter.'));

export const GetSnapshot = Type.Object({ addon_id: addonId() });
export type GetSnapshot = Static<typeof GetSnapshot>;

export const GetTimeseries = Type.Object({
  metric: Type.Enum(metricNames, { description: 'What is told.' }),
  bucket: optional(
    Type.Enum([...bucketWords], { description: 'How wide each point is; 5m where left out.' }),
  ),
  range: optional(
    Type.String({
      maxLength: 20,
      description: 'How far back: a whole number of m, h or d from 1h to 30d; 24h where left out.',
    }),
  ),
  addon_id: addonId(),
});
export type GetTimeseries = Static<typeof GetTimeseries>;

/** How often a stream of snapshots may tell one. */
export const watchMs = { min: 200, default: 1_000, max: 60_000 } as const;

export const WatchSnapshots = Type.Object({
  addon_id: addonId(),
  interval_ms: optional(
    Type.Integer({
      minimum: watchMs.min,
      maximum: watchMs.max,
      description: `How long from one snapshot to the next; ${watchMs.default} where left out.`,
    }),
  ),
});
export type WatchSnapshots = Static<typeof WatchSnapshots>;
