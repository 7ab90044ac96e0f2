import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { type Latency, latencyOf } from '../stats.ts';
import type { Round } from './drive.ts';

/** What happened in a part of the time. */
export interface Window {
  /** What came back in it. */
  done: number;
  elapsedMs: number;
  /** Of what was due in it: from when it was due. */
  latency: Latency;
}

export interface Paced extends Omit<Round, 'loadCpuMs'> {
  windows: Window[];
  /** Acts that had not been answered long after the end. */
  unanswered: number;
}

export interface Pace {
  /** How many there are that act. */
  count: number;
  durationMs: number;
  windowMs: number;
  /** When each acts for the first time, from the beginning. */
  firstMs(who: number): number;
  /** How long after one act the next is due. */
  everyMs(): number;
  /** Acts, and answers with how much came of it. */
  act(who: number): Promise<number>;
}

const tickMs = 5;
/** How long after the end answers are waited for. */
const patienceMs = 30_000;

/**
 * Lets each act at times of its own, whether or not what it did before was answered, and waits for the answers at the
 * end. Latencies are counted from when an act was due: a server that is slow, and a load that is late because of it,
 * both show.
 */
export async function pace(by: Pace): Promise<Paced> {
  const recorder = new Recorder(by);
  const due = new Map<number, number[]>();
  const plan = (who: number, atMs: number) => {
    const tick = Math.ceil(atMs / tickMs);
    const others = due.get(tick);
    if (others) others.push(who);
    else due.set(tick, [who]);
  };
  for (let who = 0; who < by.count; who++) plan(who, by.firstMs(who));
  const began = performance.now();
  for (let tick = 0; tick * tickMs < by.durationMs; tick++) {
    const dueMs = tick * tickMs;
    const earlyMs = began + dueMs - performance.now();
    // Even who is late must let answers in.
    await (earlyMs > 0 ? delay(Math.ceil(earlyMs)) : turn());
    recorder.check();
    for (const who of due.get(tick) ?? []) {
      // A timer may be a little early as well.
      const fromMs = Math.min(dueMs, performance.now() - began);
      recorder.record(by.act(who), began, fromMs);
      plan(who, dueMs + by.everyMs());
    }
    due.delete(tick);
  }
  return recorder.finish();
}

class Recorder {
  readonly #windows: { done: number; latenciesMs: number[] }[];
  readonly #answers = new Set<Promise<void>>();
  readonly #by: Pace;
  #failure: { error: unknown } | undefined;

  constructor(by: Pace) {
    this.#by = by;
    const count = Math.ceil(by.durationMs / by.windowMs);
    this.#windows = Array.from({ length: count }, () => ({ done: 0, latenciesMs: [] }));
  }

  record(act: Promise<number>, began: number, fromMs: number): void {
    const answer = act
      .then((did) => {
        const atMs = performance.now() - began;
        this.#windowAt(fromMs)?.latenciesMs.push(atMs - fromMs);
        // What comes after the end is waited for, and belongs to no window.
        const window = this.#windowAt(atMs);
        if (window) window.done += did;
      })
      .catch((error) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#answers.delete(answer));
    this.#answers.add(answer);
  }

  check(): void {
    if (this.#failure) throw this.#failure.error;
  }

  async finish(): Promise<Paced> {
    const over = new AbortController();
    const late = delay(patienceMs, undefined, { signal: over.signal }).catch(() => {});
    await Promise.race([Promise.all(this.#answers), late]);
    over.abort();
    this.check();
    const { durationMs, windowMs } = this.#by;
    return {
      done: this.#windows.reduce((sum, { done }) => sum + done, 0),
      elapsedMs: durationMs,
      latency: latencyOf(this.#windows.flatMap(({ latenciesMs }) => latenciesMs)),
      unanswered: this.#answers.size,
      windows: this.#windows.map(({ done, latenciesMs }, i) => ({
        done,
        elapsedMs: Math.min(windowMs, durationMs - i * windowMs),
        latency: latencyOf(latenciesMs),
      })),
    };
  }

  #windowAt(ms: number) {
    return this.#windows[Math.floor(ms / this.#by.windowMs)];
  }
}
