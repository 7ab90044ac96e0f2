/** The guarantee: in a simulated fleet, retry hints from rates and deadlines beat a fixed hint of 2 s. */
import { expect } from 'chai';
import { retryAfterMs } from '../../../src/domain/jobs/backoff.ts';
import { RateMeter } from '../../../src/lib/async/rate-meter.ts';

const stepMs = 10;

interface Fleet {
  workers: number;
  workMs: number;
  /** When each job becomes ready, in order. */
  readyAtMs: readonly number[];
  untilMs: number;
  /** Hints know only the deadlines of jobs that will become ready, and no rate. */
  isScheduled?: boolean;
}

/** A reproducible random number from 0 to 1. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Workers take the oldest ready job. A worker that is denied returns after the hint. */
function simulate({ workers, workMs, readyAtMs, untilMs, isScheduled = false }: Fleet, isFixed: boolean) {
  const random = randomFrom(7);
  const [jobs, requests] = [new RateMeter(), new RateMeter()];
  const nextAtMs = Array.from({ length: workers }, () => 2_000 * random());
  const result = { denied: 0, granted: 0, waitMs: 0 };
  let [arrived, taken] = [0, 0];
  for (let nowMs = 0; nowMs < untilMs; nowMs += stepMs) {
    for (; (readyAtMs[arrived] ?? untilMs) <= nowMs; arrived++) if (!isScheduled) jobs.count(1, nowMs);
    for (const [i, atMs] of nextAtMs.entries()) {
      if (atMs > nowMs) continue;
      if (taken < arrived) {
        result.granted++;
        result.waitMs += nowMs - (readyAtMs[taken++] as number);
        nextAtMs[i] = nowMs + workMs;
        continue;
      }
      result.denied++;
      requests.count(1, nowMs);
      const next = isScheduled ? readyAtMs[arrived] : undefined;
      const facts = {
        nextDueMs: next === undefined ? null : next - nowMs,
        missing: 1,
        perSecond: jobs.perSecond(nowMs),
        asking: requests.perSecond(nowMs),
      };
      nextAtMs[i] = nowMs + (isFixed ? 2_000 * (0.8 + 0.4 * random()) : retryAfterMs(facts, random()));
    }
  }
  return { ...result, meanWaitMs: result.waitMs / result.granted };
}

const every = (ms: number, untilMs: number) => Array.from({ length: untilMs / ms }, (_, i) => (i + 1) * ms);

/** The fleet with hints, and with a fixed hint of 2 s. */
const compared = (fleet: Fleet) => ({ hinted: simulate(fleet, false), fixed: simulate(fleet, true) });

describe('retryAfterMs in a fleet of polling workers', () => {
  it("cuts a ready job's wait for a lone worker to a quarter, from the rate of ready jobs", () => {
    const untilMs = 600_000;
    const { hinted, fixed } = compared({ workers: 1, workMs: 50, readyAtMs: every(500, untilMs), untilMs });
    expect(fixed.meanWaitMs).to.be.within(1_000, 1_100);
    expect(hinted.meanWaitMs).to.be.within(230, 270);
  });

  it('halves the denied requests of 100 workers that wait for a scheduled job', () => {
    const fleet = { workers: 100, workMs: 50, readyAtMs: [20_000], untilMs: 30_000, isScheduled: true };
    const { hinted, fixed } = compared(fleet);
    expect(fixed.denied).to.be.within(1_400, 1_600);
    expect(hinted.denied).to.be.within(600, 750);
  });

  it('cuts the denied requests of 20,000 idle workers to less than a third', () => {
    const { hinted, fixed } = compared({ workers: 20_000, workMs: 50, readyAtMs: [], untilMs: 20_000 });
    expect(fixed.denied).to.be.within(195_000, 205_000);
    expect(hinted.denied).to.be.within(50_000, 60_000);
  });
});
