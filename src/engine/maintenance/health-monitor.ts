/**
 * Monitors whether the database answers, and whether the server is ready, which means that the database also
 * accepts its writes.
 *
 * Lifecycle: checks every `checkMs` while started, and at once with `runOnce`. `onChange` reports the
 * database, `onReady` the server. A refusal of writes is reported at once. Before the first check both report
 * false.
 */

import type { Service } from '../../lib/async/service.ts';
import { withTimeout } from '../../lib/async/with-timeout.ts';
import { inOneLine } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';

const checkMs = 5_000;
const timeoutMs = 2_000;

export class HealthMonitor implements Service {
  readonly #database: Database;
  readonly #listeners: ((up: boolean) => void)[] = [];
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<boolean> | undefined;
  readonly #readyListeners: ((ready: boolean) => void)[] = [];
  #up = false;
  #wasReady = false;
  #reason: string | undefined;

  constructor(database: Database) {
    this.#database = database;
    database.onRefusal(() => this.#tellReady());
  }

  get databaseUp(): boolean {
    return this.#up;
  }

  /** Why the database does not answer, if it gave a reason. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Why the database refuses writes of this server, while it does; reads go on. */
  get refusal(): string | undefined {
    return this.#database.refusal;
  }

  get isReady(): boolean {
    return this.#up && this.refusal === undefined;
  }

  onReady(listener: (ready: boolean) => void): void {
    this.#readyListeners.push(listener);
    listener(this.isReady);
  }

  onChange(listener: (up: boolean) => void): void {
    this.#listeners.push(listener);
    listener(this.#up);
  }

  start(): void {
    this.#timer ??= setInterval(() => void this.runOnce(), checkMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#checking;
  }

  /** Checks now. Concurrent callers share one check. */
  runOnce(): Promise<boolean> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
  }

  async #check(): Promise<boolean> {
    const answered = this.#database.ping(AbortSignal.timeout(timeoutMs)).then(
      () => true,
      (error: unknown) => {
        this.#reason = inOneLine(error);
        return false;
      },
    );
    this.#reason = undefined;
    // A database that hangs reports nothing, so the timeout is measured here.
    const up = await withTimeout(answered, timeoutMs, false);
    if (!up) this.#reason ??= `no answer within ${timeoutMs} ms`;
    if (up !== this.#up) {
      this.#up = up;
      for (const listener of this.#listeners) listener(up);
      this.#tellReady();
    }
    return up;
  }

  #tellReady(): void {
    if (this.isReady === this.#wasReady) return;
    this.#wasReady = this.isReady;
    for (const listener of this.#readyListeners) listener(this.isReady);
  }
}
