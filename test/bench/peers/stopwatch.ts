import type { Untimed } from '../load/drive.ts';

/** Measures from its first `start`, so that whoever is ready first may begin. */
export class Stopwatch {
  #began: number | undefined;
  #cpu: NodeJS.CpuUsage | undefined;

  start(): void {
    if (this.#began !== undefined) return;
    this.#began = performance.now();
    this.#cpu = process.cpuUsage();
  }

  stop(done: number): Untimed {
    if (this.#began === undefined) throw new Error('nothing has begun');
    const elapsedMs = performance.now() - this.#began;
    const { user, system } = process.cpuUsage(this.#cpu);
    return { done, elapsedMs, loadCpuMs: (user + system) / 1000 };
  }
}

/** A promise that is kept when so many have been counted. */
export class Countdown {
  readonly over: Promise<void>;
  #left: number;
  #resolve = () => {};

  constructor(count: number) {
    this.#left = count;
    this.over = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  count(): void {
    if (--this.#left === 0) this.#resolve();
  }
}
