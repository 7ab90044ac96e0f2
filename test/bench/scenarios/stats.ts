import { sample } from '../measure.ts';
import type { Bench, Scenario } from '../scenario.ts';
import type { ServerProcess } from '../server-process.ts';

const base = '/api/scheduler/stats';
const snapshotGoalMs = 5;
const monthGoalMs = 200;

const readings: readonly [name: string, path: string, goalMs: number][] = [
  ['snapshot', `${base}/snapshot`, snapshotGoalMs],
  ['snapshot of one submitter', `${base}/snapshot?addon_id=addon1`, snapshotGoalMs],
  ['30 days of jobs_queued by 1h', `${base}/timeseries?metric=jobs_queued&bucket=1h&range=30d`, monthGoalMs],
  ['30 days of run_ms_p95 by 1h', `${base}/timeseries?metric=run_ms_p95&bucket=1h&range=30d`, monthGoalMs],
  ['the same by 1d', `${base}/timeseries?metric=run_ms_p95&bucket=1d&range=30d`, monthGoalMs],
  [
    '20 days of wait_ms_p95 by 15m',
    `${base}/timeseries?metric=wait_ms_p95&bucket=15m&range=20d`,
    monthGoalMs,
  ],
];

export const stats: Scenario = {
  name: 'stats',
  about:
    'Snapshots and time series of a month over REST, one at a time, beside jobs that wait and jobs that are over',
  engines: ['postgresql', 'embedded'],
  smokeEngines: ['postgresql'],
  async run(bench) {
    const { sizes, stage, load } = bench;
    const store = await stage.newStore();
    const { statsQueued: queued, statsFinished: finished } = sizes;
    await load.run('seedStats', { place: store.place, queued, finished });
    await store.vacuum();
    const server = await bench.serve(store);
    for (const reading of readings) await look(bench, server, reading);
  },
};

async function look(
  bench: Bench,
  server: ServerProcess,
  [name, path, goalMs]: (typeof readings)[number],
): Promise<void> {
  const { sizes, load } = bench;
  const read = (reads: number) => load.run('readStats', { address: server.http, path, reads });
  await read(3);
  const round = await sample(bench, server, () => read(sizes.statsReads));
  const { p50Ms, p99Ms } = round.latency;
  const goal = sizes.judged ? { below: goalMs } : undefined;
  bench.report({ name: `${name}, p50`, unit: 'ms', values: [p50Ms], goal });
  bench.report({ name: `${name}, p99`, unit: 'ms', values: [p99Ms] });
}
