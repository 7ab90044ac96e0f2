import { type Latency, latencyOf } from '../stats.ts';

/** What one round of load did. */
export interface Round {
  /** Jobs or calls, as the scenario counts. */
  done: number;
  elapsedMs: number;
  /** Processor time that the load itself took. */
  loadCpuMs: number;
  latency: Latency;
}

/** A round of which nobody has seen how long a single call took. */
export type Untimed = Omit<Round, 'latency'> & { latency?: Latency | undefined };

/**
 * Keeps so many calls in flight, each sent when the one before it was answered. `next` starts a call and says what it
 * did; undefined where there is nothing more to do.
 */
export async function drive(
  inFlight: number,
  next: (lane: number) => Promise<number> | undefined,
): Promise<Round> {
  const latenciesMs: number[] = [];
  let done = 0;
  const cpuBefore = process.cpuUsage();
  const began = performance.now();
  const lane = async (number: number) => {
    for (;;) {
      const sent = performance.now();
      const call = next(number);
      if (call === undefined) return;
      // In two steps: `done += await` would add to what it was before the wait.
      const did = await call;
      done += did;
      latenciesMs.push(performance.now() - sent);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, (_, number) => lane(number)));
  const elapsedMs = performance.now() - began;
  const cpu = process.cpuUsage(cpuBefore);
  return { done, elapsedMs, loadCpuMs: (cpu.user + cpu.system) / 1000, latency: latencyOf(latenciesMs) };
}

/** Starts calls until the time is over. */
export function forDuration(durationMs: number, start: (lane: number) => Promise<number>) {
  const until = performance.now() + durationMs;
  return (lane: number) => (performance.now() < until ? start(lane) : undefined);
}

/** Starts so many calls in all. */
export function forCount(count: number, start: (lane: number) => Promise<number>) {
  let left = count;
  return (lane: number) => (left-- > 0 ? start(lane) : undefined);
}

/**
 * Goes round and round through what belongs to a lane: every so-manieth of all. Nothing is in two lanes, so that nothing
 * is under way twice.
 */
export function takeTurns<T>(items: readonly T[], lanes: number): (lane: number) => T {
  if (items.length < lanes) throw new Error(`${lanes} at a time are too many for ${items.length}`);
  const rounds = Array.from({ length: lanes }, () => 0);
  return (lane) => {
    const round = rounds[lane] as number;
    const at = lane + round * lanes;
    rounds[lane] = at + lanes < items.length ? round + 1 : 0;
    return items[at] as T;
  };
}
