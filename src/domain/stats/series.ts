import { invalid } from '../errors.ts';

/**
 * Counts and rates, computed from tallies that are kept per minute. Everything here is arithmetic on what the
 * store has read.
 */

/** The widths that the points of a series may have. */
export const bucketWords = ['1m', '5m', '15m', '1h', '1d'] as const;
export type BucketWord = (typeof bucketWords)[number];

/** The widths of the stored roll-ups, in minutes. Every width of a point is a multiple of one of them. */
export const rollupLevels = [1, 5, 60] as const;
export type RollupLevel = (typeof rollupLevels)[number];

const minuteMs = 60_000;
const unitsMs = { m: minuteMs, h: 60 * minuteMs, d: 24 * 60 * minuteMs } as const;
const rangeMinMs = unitsMs.h;
const rangeMaxMs = 30 * unitsMs.d;
const pointsMax = 2_000;

/** Gauges. The store keeps their changes; the sum of the changes is the present value. */
export const gaugeColumns = ['queued', 'claimed', 'reserved', 'running', 'used'] as const;
export type GaugeColumn = (typeof gaugeColumns)[number];

/** Counters. */
export const counterColumns = [
  'submitted',
  'done',
  'failed',
  'canceled',
  'timeouts',
  'granted',
  'expired',
  /** Failed jobs that were retried, counted in the minute of the failure and not of the retry. */
  'failed_retried',
] as const;
export type CounterColumn = (typeof counterColumns)[number];

export type Metric =
  | { kind: 'gauge'; column: GaugeColumn }
  | { kind: 'counter'; column: CounterColumn }
  | { kind: 'duration'; of: 'wait' | 'run'; share: number }
  | { kind: 'usable' };

/**
 * All metrics by name:
 * - A gauge is its last value in the bucket.
 * - A counter is the number of events in the bucket.
 * - A duration is a percentile of the durations that ended in the bucket: `wait` from when a job may be
 *   leased to its grant, `run` from the grant to the lease's end.
 *
 * Every running job has one active lease, so `jobs_running` and `leases_active` use the same column.
 */
export const metrics = {
  jobs_queued: { kind: 'gauge', column: 'queued' },
  jobs_claimed: { kind: 'gauge', column: 'claimed' },
  jobs_running: { kind: 'gauge', column: 'running' },
  jobs_submitted: { kind: 'counter', column: 'submitted' },
  jobs_done: { kind: 'counter', column: 'done' },
  jobs_failed: { kind: 'counter', column: 'failed' },
  jobs_canceled: { kind: 'counter', column: 'canceled' },
  jobs_timeout: { kind: 'counter', column: 'timeouts' },
  leases_active: { kind: 'gauge', column: 'running' },
  leases_granted: { kind: 'counter', column: 'granted' },
  leases_expired: { kind: 'counter', column: 'expired' },
  capacity_used: { kind: 'gauge', column: 'used' },
  capacity_usable: { kind: 'usable' },
  wait_ms_p50: { kind: 'duration', of: 'wait', share: 0.5 },
  wait_ms_p95: { kind: 'duration', of: 'wait', share: 0.95 },
  run_ms_p50: { kind: 'duration', of: 'run', share: 0.5 },
  run_ms_p95: { kind: 'duration', of: 'run', share: 0.95 },
} as const satisfies Record<string, Metric>;

export type MetricName = keyof typeof metrics;
export const metricNames = Object.keys(metrics) as MetricName[];

/**
 * The present figures of the system, or of one submitter. Times are milliseconds since 1970 by the database's
 * clock.
 */
export interface Snapshot {
  tsMs: number;
  /** Null for all submitters together. */
  addonId: string | null;
  /**
   * `used` and `reserved` are the submitter's where one is requested; the other figures always cover all
   * submitters.
   */
  capacity: {
    total: number;
    busyRating: number;
    usable: number;
    used: number;
    available: number;
    reserved: number;
  };
  jobs: { queued: number; claimed: number; running: number };
  leases: { active: number };
  /**
   * Events of the last 24 hours, to the minute. `failed` counts the jobs that failed in that time and are
   * FAILED now.
   */
  last24h: Record<Exclude<CounterColumn, 'failed_retried'>, number>;
}

export interface Point {
  tsMs: number;
  /** Null where no server was alive, and for a percentile without durations. */
  value: number | null;
}

export interface Timeseries {
  metric: MetricName;
  bucket: BucketWord;
  addonId: string | null;
  points: Point[];
}

/** The points of a series, and the roll-ups that they are computed from. */
export interface SeriesPlan {
  widthMs: number;
  points: number;
  level: RollupLevel;
}

/** Plans a series, or throws an error that names the problem and the widths that fit. */
export function planSeries(bucket: BucketWord, range: string): SeriesPlan {
  const widthMs = spanMs(bucket);
  const rangeMs = /^[1-9]\d{0,5}[mhd]$/.test(range) ? spanMs(range) : Number.NaN;
  if (!(rangeMs >= rangeMinMs && rangeMs <= rangeMaxMs)) {
    throw invalid('range', 'must be from 1h to 30d, as a whole number of m, h or d, such as 90m, 24h or 7d');
  }
  const points = Math.ceil(rangeMs / widthMs);
  if (points > pointsMax) {
    const fitting = bucketWords.filter((word) => Math.ceil(rangeMs / spanMs(word)) <= pointsMax);
    const words = `${bucket} would be ${points} points over ${range}, of at most ${pointsMax}; it may be ${fitting.join(', ')}`;
    throw invalid('bucket', words);
  }
  const level = rollupLevels.findLast((minutes) => widthMs % (minutes * minuteMs) === 0);
  if (level === undefined) throw new Error(`no roll-ups add up to ${bucket}`);
  return { widthMs, points, level };
}

const spanMs = (words: string): number =>
  Number(words.slice(0, -1)) * unitsMs[words.at(-1) as keyof typeof unitsMs];

/**
 * Durations are counted in slots. Each slot is 5 % longer than the one before, starting at a millisecond. A
 * percentile read from them is within 2.5 % of the exact one, and the size of a histogram does not depend on
 * its counts.
 */
export const slotGrowth = 1.05;
/** The last slot, of some 95 days: longer than any lease and most waits. */
export const slotMax = 468;

/** The slot of a duration. */
export const slotOf = (ms: number): number =>
  Math.min(Math.ceil(Math.log(Math.max(ms, 1)) / Math.log(slotGrowth)), slotMax);

/** The duration that represents a slot: its middle, at the same ratio to both ends. */
export function slotMs(slot: number): number {
  if (slot <= 0) return 1;
  return Math.round(slotGrowth ** (slot - 0.5) * 100) / 100;
}

/** How many durations fell into each slot; the index is the slot. */
export type Histogram = Float64Array;
export const emptyHistogram = (): Histogram => new Float64Array(slotMax + 1);

/** The smallest duration that the given share of all durations does not exceed; null where there are none. */
export function percentile(histogram: Histogram, share: number): number | null {
  const count = histogram.reduce((sum, n) => sum + n, 0);
  if (count === 0) return null;
  let left = Math.ceil(count * share);
  return slotMs(
    histogram.findIndex((n) => {
      left -= n;
      return left <= 0;
    }),
  );
}

/** A part of the figures of a bucket. Parts of the same bucket add up. */
export interface Part {
  tsMs: number;
  amount: number;
  slots: readonly number[];
  counts: readonly number[];
}

/** What the store has read for a series, in one snapshot. */
export interface SeriesFacts {
  nowMs: number;
  /** The present value of a gauge. */
  current: number;
  /** The start times of the roll-ups in which a server was alive. */
  livedMs: readonly number[];
  parts: readonly Part[];
}

/** The points of a series. The last point is the bucket that has not ended yet. */
export function seriesPoints(metric: Metric, { widthMs, points }: SeriesPlan, facts: SeriesFacts): Point[] {
  const lastMs = floorTo(facts.nowMs, widthMs);
  const indexOf = (ms: number) => points - 1 - (lastMs - Math.min(floorTo(ms, widthMs), lastMs)) / widthMs;
  const lived = new Set(facts.livedMs.map(indexOf));
  // The server that answers this call is alive now.
  lived.add(points - 1);
  const buckets = Array.from({ length: points }, () => [] as Part[]);
  for (const part of facts.parts) buckets[indexOf(part.tsMs)]?.push(part);
  const values = valuesOf(metric, buckets, facts.current);
  return values.map((value, i) => ({
    tsMs: lastMs - (points - 1 - i) * widthMs,
    value: lived.has(i) ? value : null,
  }));
}

const floorTo = (ms: number, widthMs: number): number => Math.floor(ms / widthMs) * widthMs;

const amountOf = (parts: readonly Part[]): number => parts.reduce((sum, { amount }) => sum + amount, 0);

function valuesOf(metric: Metric, buckets: readonly Part[][], current: number): (number | null)[] {
  if (metric.kind === 'counter') return buckets.map(amountOf);
  if (metric.kind === 'duration') {
    return buckets.map((parts) => percentile(histogramOf(parts), metric.share));
  }
  if (metric.kind === 'usable') return lastAmounts(buckets, current);
  // The present value and all changes are known, so earlier values are computed backwards.
  const values: number[] = [];
  let value = current;
  for (const parts of [...buckets].reverse()) {
    values.push(value);
    value -= amountOf(parts);
  }
  return values.reverse();
}

/** The last sample of a bucket counts; a bucket without samples has no value. */
const lastAmounts = (buckets: readonly Part[][], current: number): (number | null)[] =>
  buckets.map((parts, i) => (i === buckets.length - 1 ? current : (latest(parts)?.amount ?? null)));

const latest = (parts: readonly Part[]): Part | undefined =>
  parts.reduce<Part | undefined>((last, part) => (last && last.tsMs > part.tsMs ? last : part), undefined);

function histogramOf(parts: readonly Part[]): Histogram {
  const histogram = emptyHistogram();
  for (const { slots, counts } of parts) {
    for (let i = 0; i < slots.length; i++) {
      const slot = slots[i] as number;
      histogram[slot] = (histogram[slot] ?? 0) + (counts[i] ?? 1);
    }
  }
  return histogram;
}
