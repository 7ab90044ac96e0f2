/**
 * pg-boss. As it comes, a worker fetches a job every two seconds, which says nothing of what it can do; so jobs are fetched
 * and completed by the calls that its workers make themselves: by default one at a time, with as many under way as ours
 * have, and in its fastest mode by the batch.
 */
import { PgBoss } from 'pg-boss';
import { drive } from '../load/drive.ts';
import { job } from '../load/messages.ts';
import { jobName, type Peer, type PeerMode } from './peer.ts';

const singlyInFlight = 64;
const batchSize = 500;
const batchesInFlight = 2;

class Boss implements Peer {
  readonly #boss: PgBoss;

  constructor(boss: PgBoss) {
    this.#boss = boss;
  }

  async submitBatch(jobs: number): Promise<void> {
    const one = { data: job.payload };
    await this.#boss.insert(
      jobName,
      Array.from({ length: jobs }, () => one),
    );
  }

  async submitOne(): Promise<void> {
    await this.#boss.send(jobName, job.payload);
  }

  drain(mode: PeerMode, jobs: number) {
    return mode === 'default'
      ? this.#drain(singlyInFlight, 1, jobs)
      : this.#drain(batchesInFlight, batchSize, jobs);
  }

  close(): Promise<void> {
    return this.#boss.stop({ graceful: false });
  }

  #drain(inFlight: number, size: number, jobs: number) {
    let left = jobs;
    const work = async () => {
      const fetched = await this.#boss.fetch(jobName, { batchSize: size });
      const ids = fetched.map(({ id }) => id);
      if (ids.length > 0) await this.#boss.complete(jobName, ids);
      left -= ids.length;
      return ids.length;
    };
    return drive(inFlight, () => (left > 0 ? work() : undefined));
  }
}

export async function openPeer(url: string): Promise<Peer> {
  const boss = new PgBoss({ connectionString: url });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  await boss.createQueue(jobName);
  return new Boss(boss);
}
