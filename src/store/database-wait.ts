/**
 * Lets a server's start wait for a PostgreSQL that is not available yet: refused connections, a name that
 * does not resolve, a database that starts, stops or is full. A wrong password, a missing database or a wrong
 * encoding fails at once.
 *
 * `run` repeats its work until it succeeds. It throws the last error when the time limit passes or the start
 * is aborted. All calls of one `DatabaseWait` share one time limit and one log line.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { inOneLine, type Log } from '../lib/log.ts';
import { isUnavailable } from './connection/sql.ts';

const pauseMs = 500;

export interface DatabaseWaitOptions {
  waitS: number;
  log: Log;
  /** Aborts the start. */
  signal?: AbortSignal | undefined;
}

export class DatabaseWait {
  readonly #options: DatabaseWaitOptions;
  readonly #until: number;
  #isLogged = false;

  constructor(options: DatabaseWaitOptions) {
    this.#options = options;
    this.#until = performance.now() + options.waitS * 1000;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    const { waitS, log, signal } = this.#options;
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const leftMs = this.#until - performance.now();
        if (!isUnavailable(error) || leftMs <= 0 || signal?.aborted) throw error;
        if (!this.#isLogged) log.warn('waiting for the database', { waitS, reason: inOneLine(error) });
        this.#isLogged = true;
        // An aborted start ends with the error that it waited on.
        await delay(Math.min(pauseMs, leftMs), undefined, { signal }).catch(() => {});
      }
    }
  }
}
