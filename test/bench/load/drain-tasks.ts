/** Workers over gRPC that take work and give it back done, as fast as they can, at a pace, and one that waits. */
import { setTimeout as delay } from 'node:timers/promises';
import { latencyOf } from '../stats.ts';
import * as words from './drain-messages.ts';
import { drive, forCount, type Round } from './drive.ts';
import * as messages from './messages.ts';
import { pace } from './pace.ts';
import { closeConnections, type GrpcTarget, linksTo, nth } from './targets.ts';
import { Hands, type Hiring } from './work-stream.ts';

export interface DrainRound extends Round {
  /** Jobs that were handed out more than once, to this round or to one before it. */
  duplicates: number;
  /** Answers without a job although there were jobs. */
  empty: number;
}

/** Where workers call, and how many jobs they are to carry out. */
export interface DrainOrder {
  target: GrpcTarget;
  stream: string;
  jobs: number;
}

/** Jobs that were handed out in this scenario. */
const drained = new Set<string>();

export const forgetDrained = (): void => drained.clear();

interface UnaryHiring {
  target: GrpcTarget;
  stream: string;
  workers: number;
}

interface UnaryHands {
  duplicates: number;
  empty: number;
  /** Takes a job, if there is one within so long, and gives it back: how many it were. */
  work(lane: number): Promise<number>;
}

function handsAt({ target, stream, workers }: UnaryHiring, seen: Set<string>, waitMs?: number): UnaryHands {
  const links = linksTo(target);
  const names = Array.from({ length: workers }, (_, i) => `worker-${i}`);
  const requests = names.map((name) => words.acquire(name, stream, waitMs));
  const releases = names.map((name) => new words.Releases(name));
  let checked = false;
  const hands: UnaryHands = {
    duplicates: 0,
    empty: 0,
    async work(lane) {
      const link = nth(links, lane);
      const answer = await link.call(words.paths.acquire, nth(requests, lane));
      const grant = words.granted(answer);
      if (!grant) {
        hands.empty++;
        return 0;
      }
      if (seen.has(grant.jobId)) hands.duplicates++;
      seen.add(grant.jobId);
      const released = await link.call(words.paths.release, nth(releases, lane).of(grant.leaseId));
      if (!checked) words.checkRound(answer, grant, released);
      checked = true;
      return 1;
    },
  };
  return hands;
}

/** So many jobs at once are submitted where they come at a pace. */
const pacedBatch = 50;
const pacedLanes = 4;
const pacedWaitMs = 250;

/** Where jobs come at a pace, and for how long. */
export interface SteadyOrder extends Omit<DrainOrder, 'jobs'> {
  perSecond: number;
  durationMs: number;
}

export interface Steady extends DrainRound {
  /** How much has been submitted meanwhile. */
  submitted: number;
}

/** Jobs come at a pace, a batch at a time, for as long as is said. */
function submitAtAPace({ target, stream, perSecond, durationMs }: SteadyOrder): ReturnType<typeof pace> {
  const links = linksTo({ ...target, connections: 1 });
  const request = messages.submitJobs(pacedBatch, stream);
  const everyMs = (1_000 * pacedBatch) / perSecond;
  return pace({
    count: pacedLanes,
    durationMs,
    windowMs: durationMs,
    firstMs: (lane) => lane * everyMs,
    everyMs: () => pacedLanes * everyMs,
    act: async () => {
      await nth(links, 0).call(messages.paths.submitJobs, request);
      return pacedBatch;
    },
  });
}

/** Workers on streams, until `work` is over. Streams that were left open would take the jobs of the next round. */
async function withStreams(
  { target, ...hiring }: Hiring & { target: GrpcTarget },
  seen: Set<string>,
  work: (hands: Hands) => Promise<unknown>,
): Promise<DrainRound> {
  const cpuBefore = process.cpuUsage();
  const began = performance.now();
  const hands = new Hands(linksTo(target), hiring, seen);
  try {
    await work(hands);
    const { user, system } = process.cpuUsage(cpuBefore);
    const { done, duplicates, latenciesMs } = hands;
    const round = {
      done,
      elapsedMs: performance.now() - began,
      loadCpuMs: (user + system) / 1000,
      latency: latencyOf(latenciesMs),
      duplicates,
      empty: 0,
    };
    await hands.leave();
    return { ...round, duplicates: hands.duplicates };
  } finally {
    closeConnections();
  }
}

export const drainTasks = {
  /** Workers on streams hand in what they are granted, until that were so many. */
  drainStreams: ({ jobs, ...on }: DrainOrder & Hiring): Promise<DrainRound> =>
    withStreams(on, drained, (hands) => hands.until(jobs)),

  /** The same where jobs come at a pace. */
  async streamSteadily(on: SteadyOrder & Hiring): Promise<Steady> {
    let submitted = 0;
    const round = await withStreams(on, new Set(), async (hands) => {
      submitted = (await Promise.race([submitAtAPace(on), hands.failed])).done;
    });
    return { ...round, submitted };
  },

  /** Each worker acquires the next job with its lease, releases it, and acquires the next. */
  async drainUnary(on: DrainOrder & { workers: number }): Promise<DrainRound> {
    const hands = handsAt(on, drained);
    const round = await drive(on.workers, forCount(on.jobs, hands.work));
    return { ...round, duplicates: hands.duplicates, empty: hands.empty };
  },

  /** Jobs come at a pace, and workers that wait for them take what comes. */
  async workSteadily(on: SteadyOrder & { workers: number }): Promise<Steady> {
    const hands = handsAt(on, new Set(), pacedWaitMs);
    const until = performance.now() + on.durationMs;
    const next = (lane: number) => (performance.now() < until ? hands.work(lane) : undefined);
    const [round, { done: submitted }] = await Promise.all([drive(on.workers, next), submitAtAPace(on)]);
    return { ...round, duplicates: hands.duplicates, empty: hands.empty, submitted };
  },

  /**
   * One worker waits on a server that has nothing else to do, and a job is submitted over another connection. A latency is
   * from the call that submits to the grant's arrival.
   */
  async awaitGrants(on: {
    target: GrpcTarget;
    stream: string;
    jobs: number;
    pauseMs: number;
    waitMs: number;
  }): Promise<Round & { empty: number }> {
    const [waiting, submitting] = linksTo({ ...on.target, connections: 2 });
    if (!waiting || !submitting) throw new Error('there are no connections');
    const worker = 'worker-0';
    const acquire = words.acquire(worker, on.stream, on.waitMs);
    const releases = new words.Releases(worker);
    const submit = messages.submitJob(on.stream);
    let empty = 0;
    const once = async () => {
      const grant = waiting.call(words.paths.acquire, acquire);
      await delay(on.pauseMs);
      const sent = performance.now();
      const submitted = submitting.call(messages.paths.submitJob, submit);
      const found = words.granted(await grant);
      const tookMs = performance.now() - sent;
      await submitted;
      if (!found) empty++;
      else await waiting.call(words.paths.release, releases.of(found.leaseId));
      return tookMs;
    };
    const cpuBefore = process.cpuUsage();
    const began = performance.now();
    const latenciesMs: number[] = [];
    for (let i = 0; i < on.jobs; i++) latenciesMs.push(await once());
    const { user, system } = process.cpuUsage(cpuBefore);
    return {
      done: on.jobs,
      elapsedMs: performance.now() - began,
      loadCpuMs: (user + system) / 1000,
      latency: latencyOf(latenciesMs),
      empty,
    };
  },
};
