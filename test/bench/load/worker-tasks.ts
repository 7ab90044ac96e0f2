/** Workers of the worker contract, over REST. */
import { type Latency, latencyOf } from '../stats.ts';
import { drive, forCount, type Round } from './drive.ts';
import { type LeanHttpConnection, post } from './lean-http.ts';
import * as messages from './messages.ts';
import { pace } from './pace.ts';
import { httpTo, nth } from './targets.ts';

export interface WorkerRound extends Round {
  /** Jobs that were handed out more than once, to this round or to one before it. */
  duplicates: number;
  /** Claims that got nothing although there were jobs. */
  empty: number;
}

/** What a claim answers, as far as a worker needs it here. */
interface Claim {
  claimed: boolean;
  job_id: string;
  attempt_id: string;
  lease_token: string;
  stream: { name: string; message_id: string };
  payload: { sent_at?: number };
}

const seen = new Set<string>();

export const forgetJobs = (): void => seen.clear();

const claimRequest = (worker: number, stream: string, maxWaitMs: number): Buffer =>
  post('/internal/worker/claim', {
    worker_id: `worker-${worker}`,
    streams: [stream],
    max_wait_ms: maxWaitMs,
  });

async function claimOne(connection: LeanHttpConnection, request: Buffer): Promise<Claim> {
  const { status, text } = await connection.ask(request);
  if (status !== 200) throw new Error(`a claim answered ${status}: ${text}`);
  return JSON.parse(text) as Claim;
}

async function completeOne(connection: LeanHttpConnection, worker: number, claim: Claim): Promise<void> {
  const { job_id, attempt_id, lease_token, stream } = claim;
  const { status, text } = await connection.ask(
    post('/internal/worker/complete', {
      worker_id: `worker-${worker}`,
      job_id,
      attempt_id,
      lease_token,
      stream: stream.name,
      message_id: stream.message_id,
      result: { pages: 12 },
    }),
  );
  if (status !== 200) throw new Error(`a completion answered ${status}: ${text}`);
}

export const workerTasks = {
  /** Each worker claims a job, completes it, and claims the next. */
  async work(on: { address: string; stream: string; workers: number; jobs: number }): Promise<WorkerRound> {
    const connections = httpTo(on.address, on.workers);
    const requests = Array.from({ length: on.workers }, (_, worker) => claimRequest(worker, on.stream, 0));
    let duplicates = 0;
    let empty = 0;
    const work = async (worker: number) => {
      const connection = nth(connections, worker);
      const claim = await claimOne(connection, nth(requests, worker));
      if (!claim.claimed) {
        empty++;
        return 0;
      }
      if (seen.has(claim.job_id)) duplicates++;
      seen.add(claim.job_id);
      await completeOne(connection, worker, claim);
      return 1;
    };
    return { ...(await drive(on.workers, forCount(on.jobs, work))), duplicates, empty };
  },

  /**
   * Workers wait for jobs that come at a steady pace. A latency is from when the submission was due to be sent until its
   * job was there: the submission itself, its commit and the way to the worker. The commit comes a little before the
   * answer of the submission, from which it is measured as well.
   */
  async waitForWork(on: {
    address: string;
    stream: string;
    workers: number;
    perSecond: number;
    durationMs: number;
  }): Promise<Round & { unanswered: number; afterAnswer: Latency }> {
    const submitters = httpTo(on.address, 32);
    const connections = Array.from({ length: on.workers }, (_, i) => nth(httpTo(on.address, on.workers), i));
    const arrivals = new Map<number, (done: number) => void>();
    let left = false;
    const worker = async (number: number) => {
      const request = claimRequest(number, on.stream, 2_000);
      while (!left) {
        const claim = await claimOne(nth(connections, number), request);
        if (!claim.claimed) continue;
        arrivals.get(claim.payload.sent_at ?? -1)?.(1);
        await completeOne(nth(connections, number), number, claim);
      }
    };
    const workers = Array.from({ length: on.workers }, (_, number) => worker(number));
    const cpuBefore = process.cpuUsage();
    const afterAnswer: number[] = [];
    let sent = 0;
    const everyMs = 1000 / on.perSecond;
    const lanes = submitters.length;
    const underWay = new Map<number, Promise<unknown>>();
    const { windows: _, ...paced } = await pace({
      count: lanes,
      durationMs: on.durationMs,
      windowMs: on.durationMs,
      firstMs: (lane) => lane * everyMs,
      everyMs: () => lanes * everyMs,
      act: (lane) => {
        const number = ++sent;
        const arrival = new Promise<number>((resolve) => arrivals.set(number, resolve));
        const job = {
          addon_id: messages.job.addonId,
          job_type: messages.job.jobType,
          cost_units: 1,
          stream: on.stream,
          payload: { sent_at: number },
        };
        // A connection takes one request at a time; where the last one is late, the time of this one runs already.
        const before = underWay.get(lane) ?? Promise.resolve();
        const submitted = before.then(() =>
          nth(submitters, lane).send(post('/api/scheduler/jobs/submit', job)),
        );
        underWay.set(lane, submitted);
        const arrived = arrival.then(() => performance.now());
        return submitted.then(async (status) => {
          if (status !== 201) throw new Error(`REST submit answered ${status}`);
          const answeredAt = performance.now();
          afterAnswer.push(Math.max(0, (await arrived) - answeredAt));
          return 1;
        });
      },
    });
    left = true;
    await Promise.all(workers);
    const cpu = process.cpuUsage(cpuBefore);
    return { ...paced, loadCpuMs: (cpu.user + cpu.system) / 1000, afterAnswer: latencyOf(afterAnswer) };
  },
};
