/**
 * BullMQ. Its documentation knows two ways to go faster: more jobs at once in a worker, and more workers. By default a worker
 * carries out one job at a time. How safe a job is depends on the Redis: as that comes, it writes snapshots to the disk
 * from time to time, and what came after the last one is lost with it; where it flushes every command, a job is as safe as
 * in a PostgreSQL.
 */
import { Queue, Worker } from 'bullmq';
import { job } from '../load/messages.ts';
import { jobName, type Peer, type PeerMode } from './peer.ts';
import { Countdown, Stopwatch } from './stopwatch.ts';

const concurrency = 100;
const queueName = 'bench';

class BullMq implements Peer {
  readonly #url: string;
  readonly #queue: Queue;

  constructor(url: string, queue: Queue) {
    this.#url = url;
    this.#queue = queue;
  }

  async submitBatch(jobs: number): Promise<void> {
    const one = { name: jobName, data: job.payload };
    await this.#queue.addBulk(Array.from({ length: jobs }, () => one));
  }

  async submitOne(): Promise<void> {
    await this.#queue.add(jobName, job.payload);
  }

  async drain(mode: PeerMode, jobs: number) {
    const watch = new Stopwatch();
    const left = new Countdown(jobs);
    const options = { connection: connectionTo(this.#url), autorun: false };
    const carryOut = async () => watch.start();
    const worker = new Worker(
      queueName,
      carryOut,
      mode === 'fastest' ? { ...options, concurrency } : options,
    );
    worker.on('error', (error) => process.stderr.write(`bullmq: ${error.message}\n`));
    worker.on('completed', () => left.count());
    await worker.waitUntilReady();
    const running = worker.run();
    await left.over;
    const drained = watch.stop(jobs);
    await worker.close(true);
    await running;
    return drained;
  }

  async close(): Promise<void> {
    await this.#queue.close();
  }
}

const connectionTo = (url: string) => ({ url, maxRetriesPerRequest: null });

export async function openPeer(url: string): Promise<Peer> {
  const queue = new Queue(queueName, { connection: connectionTo(url) });
  queue.on('error', (error) => process.stderr.write(`bullmq: ${error.message}\n`));
  await queue.waitUntilReady();
  return new BullMq(url, queue);
}
