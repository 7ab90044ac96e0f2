/**
 * graphile-worker. Its fastest mode is that of its own performance page: 24 jobs are carried out at once, fetched by the
 * thousand into a local queue (its page has half of that, which was slower here), and completions leave together. By
 * default each job is fetched and completed by itself; as many at once as the pool has connections, because the one at a
 * time that it comes with is no match for workers by the dozen, and more of them were slower here. It deletes what is
 * completed, and keeps no history.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Logger, makeWorkerUtils, run, type WorkerUtils } from 'graphile-worker';
import { Pool } from 'pg';
import { job } from '../load/messages.ts';
import { jobName, type Peer, type PeerMode } from './peer.ts';
import { Countdown, Stopwatch } from './stopwatch.ts';

const poolMax = 10;
const batchingJobs = 24;
const localQueueSize = 1_000;
const pollMs = 2;

// A line for each job would cost more than the job.
process.env.NO_LOG_SUCCESS = '1';
const logger = new Logger(() => (level, message) => {
  if (level === 'error') process.stderr.write(`graphile-worker: ${message}\n`);
});

const settings = {
  default: { concurrentJobs: poolMax },
  fastest: {
    concurrentJobs: batchingJobs,
    localQueue: { size: localQueueSize },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

class GraphileWorker implements Peer {
  readonly #pool: Pool;
  readonly #utils: WorkerUtils;

  constructor(pool: Pool, utils: WorkerUtils) {
    this.#pool = pool;
    this.#utils = utils;
  }

  async submitBatch(jobs: number): Promise<void> {
    const spec = { identifier: jobName, payload: job.payload };
    await this.#utils.addJobs(Array.from({ length: jobs }, () => spec));
  }

  async submitOne(): Promise<void> {
    await this.#utils.addJob(jobName, job.payload);
  }

  async drain(mode: PeerMode, jobs: number) {
    const watch = new Stopwatch();
    const left = new Countdown(jobs);
    const runner = await run({
      pgPool: this.#pool,
      noHandleSignals: true,
      parsedCronItems: [],
      preset: { worker: { ...settings[mode], logger } },
      taskList: {
        [jobName]: async () => {
          watch.start();
          left.count();
        },
      },
    });
    await left.over;
    // It does not say when a job is completed, and its rows are gone then.
    while (await this.#hasJobs()) await delay(pollMs);
    const drained = watch.stop(jobs);
    await runner.stop();
    return drained;
  }

  async close(): Promise<void> {
    await this.#utils.release();
    await this.#pool.end();
  }

  async #hasJobs(): Promise<boolean> {
    const found = await this.#pool.query('select from graphile_worker._private_jobs limit 1');
    return found.rowCount !== 0;
  }
}

export async function openPeer(url: string): Promise<Peer> {
  const pool = new Pool({ connectionString: url, max: batchingJobs + 1 });
  // It insists on both, though whoever stops the database has ended the measurement.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  return new GraphileWorker(pool, utils);
}
