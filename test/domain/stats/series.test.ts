import { expect } from 'chai';
import fc from 'fast-check';
import { DomainError } from '../../../src/domain/errors.ts';
import {
  bucketWords,
  emptyHistogram,
  type Part,
  percentile,
  planSeries,
  rollupLevels,
  seriesPoints,
  slotGrowth,
  slotMax,
  slotMs,
} from '../../../src/domain/stats/series.ts';

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;

/** The buckets as the database returns them; see `store/sql/stats/tallies.ts`. */
const slotFor = (ms: number): number =>
  Math.min(Math.ceil(Math.log(Math.max(ms, 1)) / Math.log(slotGrowth)), slotMax);

describe('the points of a series', () => {
  it('returns as many points as the range has buckets, the last of them incomplete', () => {
    expect(planSeries('5m', '24h')).to.deep.equal({ widthMs: 5 * minuteMs, points: 288, level: 5 });
    expect(planSeries('1m', '1h')).to.deep.equal({ widthMs: minuteMs, points: 60, level: 1 });
    expect(planSeries('15m', '20d')).to.deep.equal({ widthMs: 15 * minuteMs, points: 1_920, level: 5 });
    expect(planSeries('1h', '90m').points).to.equal(2);
    expect(planSeries('1d', '1h').points).to.equal(1);
    expect(planSeries('1d', '30d')).to.deep.equal({ widthMs: dayMs, points: 30, level: 60 });
  });

  it('returns at most 2,000 points, and names a bucket that fits for a larger request', () => {
    expect(planSeries('1m', '2000m').points).to.equal(2_000);
    const refused = () => planSeries('1m', '2001m');
    expect(refused).to.throw(DomainError).that.includes({ code: 'invalid_request', field: 'bucket' });
    expect(refused).to.throw('it may be 5m, 15m, 1h, 1d');
    expect(() => planSeries('15m', '30d')).to.throw(
      '2880 points over 30d, of at most 2000; it may be 1h, 1d',
    );
  });

  for (const range of [
    '',
    '0h',
    '59m',
    '31d',
    '721h',
    '1w',
    '24',
    'h',
    '-1h',
    '1.5h',
    '01h',
    ' 1h',
    '1e3m',
    'constructor',
  ]) {
    it(`refuses a range of ${JSON.stringify(range)}`, () => {
      expect(() => planSeries('1h', range))
        .to.throw(DomainError)
        .that.includes({ field: 'range' });
    });
  }

  it('reads roll-ups that add up to its buckets', () => {
    for (const bucket of bucketWords) {
      const { widthMs, level } = planSeries(bucket, '1h');
      expect(rollupLevels).to.include(level);
      expect(widthMs % (level * minuteMs)).to.equal(0);
    }
  });

  const plan = planSeries('5m', '1h');
  const nowMs = Date.parse('2026-01-01T12:03:00Z');
  const at = (clock: string): number => Date.parse(`2026-01-01T${clock}:00Z`);
  const part = (clock: string, amount: number, slots: number[] = []): Part => ({
    tsMs: at(clock),
    amount,
    slots,
    counts: slots.map(() => 1),
  });
  const livedMs = Array.from({ length: 13 }, (_, i) => at('11:05') + i * 5 * minuteMs);

  it('spaces points evenly on the bucket, and ends with the current one', () => {
    const points = seriesPoints({ kind: 'counter', column: 'done' }, plan, {
      nowMs,
      current: 0,
      livedMs,
      parts: [],
    });
    expect(points.map(({ tsMs }) => tsMs)).to.deep.equal(
      Array.from({ length: 12 }, (_, i) => at('11:05') + i * 5 * minuteMs),
    );
    expect(points.every(({ value }) => value === 0)).to.equal(true);
  });

  it('computes a gauge backwards from its current value, whatever roll-ups came late', () => {
    const parts = [part('11:58', 3), part('11:56', -1), part('12:01', 4), part('11:58', 2), part('11:20', 1)];
    const points = seriesPoints({ kind: 'gauge', column: 'queued' }, plan, {
      nowMs,
      current: 10,
      livedMs,
      parts,
    });
    const values = points.map(({ value }) => value);
    expect(values.slice(-3)).to.deep.equal([2, 6, 10]);
    expect(values.slice(0, 4)).to.deep.equal([1, 1, 1, 2]);
  });

  it('returns null for buckets without a live server, except for the current one', () => {
    const lived = [at('11:05'), at('11:30')];
    const points = seriesPoints({ kind: 'gauge', column: 'queued' }, plan, {
      nowMs,
      current: 7,
      livedMs: lived,
      parts: [],
    });
    expect(points.map(({ value }) => value)).to.deep.equal([
      7,
      null,
      null,
      null,
      null,
      7,
      null,
      null,
      null,
      null,
      null,
      7,
    ]);
  });

  it('returns null for a percentile without measurements', () => {
    const parts = [part('11:31', 0, [100, 100, 200])];
    const metric = { kind: 'duration', of: 'run', share: 0.5 } as const;
    const points = seriesPoints(metric, plan, { nowMs, current: 0, livedMs, parts });
    expect(points.map(({ value }) => value).filter((value) => value !== null)).to.deep.equal([slotMs(100)]);
  });

  it('returns the last sample of each bucket, and the current value at the end', () => {
    const parts = [part('11:31', 5), part('11:34', 8), part('11:32', 6), part('12:00', 9)];
    const points = seriesPoints({ kind: 'usable' }, plan, { nowMs, current: 4, livedMs, parts });
    expect(points[5]?.value).to.equal(8);
    expect(points.at(-1)?.value).to.equal(4);
  });
});

describe('percentiles', () => {
  it('estimates a percentile within 2.5 % of the exact one, from a millisecond to a month', () => {
    const duration = fc.double({ min: 1, max: 31 * dayMs, noNaN: true });
    fc.assert(
      fc.property(
        fc.array(duration, { minLength: 1, maxLength: 200 }),
        fc.constantFrom(0.5, 0.95),
        (all, share) => {
          const histogram = emptyHistogram();
          for (const ms of all) histogram[slotFor(ms)] = (histogram[slotFor(ms)] ?? 0) + 1;
          const exact = [...all].sort((a, b) => a - b)[Math.ceil(all.length * share) - 1] as number;
          const told = percentile(histogram, share) as number;
          expect(Math.abs(told - exact) / exact).to.be.below(0.0254 + 0.01 / exact);
        },
      ),
    );
  });

  it('returns no percentile without measurements, and one millisecond for zero durations', () => {
    expect(percentile(emptyHistogram(), 0.5)).to.equal(null);
    expect(percentile(emptyHistogram().fill(3, 0, 1), 0.95)).to.equal(1);
  });
});
