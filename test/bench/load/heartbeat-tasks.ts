/** What the load process can be asked to do with leases that live. */
import { setTimeout as delay } from 'node:timers/promises';
import { latencyOf } from '../stats.ts';
import { drive, forDuration, type Round, takeTurns } from './drive.ts';
import type { HeartbeatFloor } from './heartbeat-floor.ts';
import * as messages from './heartbeat-messages.ts';
import { HeartbeatStream, Losses } from './heartbeat-stream.ts';
import { inTime } from './in-time.ts';
import { type LeaseSet, workersOf } from './lease-set.ts';
import { type Paced, pace } from './pace.ts';
import { type GrpcTarget, httpTo, linksTo, nth } from './targets.ts';

export interface Lost {
  lost: number;
  /** Which the first was, and why. */
  firstLost: string | undefined;
}

export interface BeatRound extends Round, Lost {}

export type Kept = Paced & Round & Lost;

/** Where frames go. */
export interface StreamTarget extends GrpcTarget {
  streams: number;
}

/** Answers that have not come so long after the end of a round will not come. */
const patienceMs = 30_000;

interface Open {
  frames: messages.Frame[];
  streams: HeartbeatStream[];
}

const losses = new Losses();
const opened = new Map<string, Promise<Open>>();
let floor: HeartbeatFloor | undefined;

export async function closeHeartbeatFloor(): Promise<void> {
  await floor?.close();
  floor = undefined;
}

/** Streams end with their connections. */
export const closeStreams = (): void => opened.clear();

/** Opens streams once, and checks on each that the server does what is measured. */
function openStreams(target: StreamTarget, set: LeaseSet): Promise<Open> {
  const name = JSON.stringify([target, set]);
  const open = opened.get(name) ?? openAnew(target, set);
  opened.set(name, open);
  return open;
}

async function openAnew(target: StreamTarget, set: LeaseSet): Promise<Open> {
  // A frame belongs to one stream.
  if (target.streams > workersOf(set))
    throw new Error(`${target.streams} streams are too many for the leases`);
  const links = linksTo(target);
  const streams = Array.from(
    { length: target.streams },
    (_, i) => new HeartbeatStream(nth(links, i), losses),
  );
  const frames = messages.framesOf(set);
  const checks = streams.map((stream, i) => stream.beatChecked(nth(frames, i), set));
  await inTime(patienceMs, Promise.all(checks), unanswered);
  return { frames, streams };
}

const unanswered = 'heartbeats were not answered';

export const heartbeatTasks = {
  async seedLeases(on: Parameters<typeof import('./seed.ts').seedLeases>) {
    // Only what opens a store itself should have to load it.
    const { seedLeases } = await import('./seed.ts');
    await seedLeases(...on);
  },

  async readExpiries(on: Parameters<typeof import('./seed.ts').readExpiries>) {
    const { readExpiries } = await import('./seed.ts');
    return readExpiries(...on);
  },

  async openHeartbeatFloor(on: Parameters<typeof import('./heartbeat-floor.ts').HeartbeatFloor.open>) {
    const { HeartbeatFloor } = await import('./heartbeat-floor.ts');
    floor = await HeartbeatFloor.open(...on);
  },

  async floorBeat(on: { set: LeaseSet; durationMs: number }) {
    if (!floor) throw new Error('the floor is not open');
    return floor.beat(on.set, on.durationMs);
  },

  /** Sends frames over streams, so many of each stream being under way at any time. */
  async beatFrames(on: {
    target: StreamTarget;
    set: LeaseSet;
    inFlight: number;
    durationMs: number;
  }): Promise<BeatRound> {
    const { frames, streams } = await openStreams(on.target, on.set);
    const lanes = streams.length * on.inFlight;
    const next = takeTurns(frames, lanes);
    const beat = (lane: number) => nth(streams, lane).beat(next(lane));
    const round = drive(lanes, forDuration(on.durationMs, beat));
    return { ...(await inTime(on.durationMs + patienceMs, round, unanswered)), ...losses.take() };
  },

  /** Keeps one lease, with a pause after each answer. */
  async beatAlone(on: {
    target: StreamTarget;
    set: LeaseSet;
    beats: number;
    pauseMs: number;
  }): Promise<BeatRound> {
    const { frames, streams } = await openStreams(on.target, on.set);
    const latenciesMs: number[] = [];
    let done = 0;
    const cpuBefore = process.cpuUsage();
    const began = performance.now();
    for (let i = 0; i < on.beats; i++) {
      await delay(on.pauseMs);
      const sent = performance.now();
      done += await inTime(patienceMs, nth(streams, 0).beat(nth(frames, 0)), unanswered);
      latenciesMs.push(performance.now() - sent);
    }
    const cpu = process.cpuUsage(cpuBefore);
    return {
      done,
      elapsedMs: performance.now() - began,
      loadCpuMs: (cpu.user + cpu.system) / 1000,
      latency: latencyOf(latenciesMs),
      ...losses.take(),
    };
  },

  async beatUnary(on: { target: GrpcTarget; set: LeaseSet; inFlight: number; durationMs: number }) {
    const links = linksTo(on.target);
    const next = takeTurns(messages.heartbeatsOf(on.set), on.inFlight);
    let checked = false;
    const beat = async (lane: number) => {
      const answer = await nth(links, lane).call(messages.paths.heartbeat, next(lane));
      if (!checked) messages.checkExtended(answer, on.set);
      checked = true;
      return 1;
    };
    return drive(on.inFlight, forDuration(on.durationMs, beat));
  },

  async beatRest(on: {
    address: string;
    set: LeaseSet;
    contract: messages.RestContract;
    connections: number;
    durationMs: number;
  }) {
    const connections = httpTo(on.address, on.connections);
    const next = takeTurns(messages.restHeartbeatsOf(on.set, on.contract), on.connections);
    const beat = async (lane: number) => {
      const status = await nth(connections, lane).send(next(lane));
      if (status !== 200) throw new Error(`a REST heartbeat (${on.contract} contract) answered ${status}`);
      return 1;
    };
    return drive(on.connections, forDuration(on.durationMs, beat));
  },

  /** Keeps every lease at its time, evenly spread. */
  async keep(on: {
    target: StreamTarget;
    set: LeaseSet;
    everyMs: number;
    durationMs: number;
    windowMs: number;
  }): Promise<Kept> {
    const { frames, streams } = await openStreams(on.target, on.set);
    const cpuBefore = process.cpuUsage();
    const paced = await pace({
      count: frames.length,
      durationMs: on.durationMs,
      windowMs: on.windowMs,
      firstMs: (worker) => (worker / frames.length) * on.everyMs,
      everyMs: () => on.everyMs,
      act: (worker) => nth(streams, worker).beat(nth(frames, worker)),
    });
    const cpu = process.cpuUsage(cpuBefore);
    return { ...paced, loadCpuMs: (cpu.user + cpu.system) / 1000, ...losses.take() };
  },
};
