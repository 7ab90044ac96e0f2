/** Metrics of services and of the database. */
import type { Counter, Histogram, Series } from './registry.ts';
import { statementName, transactionName } from './statement-names.ts';
import type { Tracing } from './tracing.ts';

/** Times the rounds of a service. */
export class RoundMeter {
  readonly #duration: Histogram;
  readonly #failed: Counter;

  constructor(duration: Histogram, failed: Counter) {
    this.#duration = duration;
    this.#failed = failed;
  }

  async time<T>(work: () => Promise<T>): Promise<T> {
    const beganAt = performance.now();
    try {
      return await work();
    } catch (error) {
      this.#failed.add();
      throw error;
    } finally {
      this.#duration.observe((performance.now() - beganAt) / 1000);
    }
  }
}

/** Counts the deadlines that a reaper has processed, and their delay. */
export class ReapMeter {
  readonly #lag: Histogram;
  readonly #handled: Counter;

  constructor(lag: Histogram, handled: Counter) {
    this.#lag = lag;
    this.#handled = handled;
  }

  handled(lateMs: number): void {
    this.#lag.observe(Math.max(lateMs, 0) / 1000);
    this.#handled.add();
  }
}

export type DatabaseWork = 'statement' | 'transaction';

interface DatabaseParts {
  durations: Series<Histogram>;
  failures: Series<Counter>;
  retries: Series<Counter>;
  tracing: Tracing | undefined;
}

/** Times the statements and transactions of a database. */
export class DatabaseMeter {
  readonly #parts: DatabaseParts;
  readonly #kinds: Readonly<Record<DatabaseWork, RoundMeter>>;

  constructor(parts: DatabaseParts) {
    this.#parts = parts;
    const { durations, failures } = parts;
    const kind = (name: DatabaseWork) => new RoundMeter(durations.of(name), failures.of(name));
    this.#kinds = {
      statement: kind('statement'),
      transaction: kind('transaction'),
    };
  }

  /** `text` is the text of a statement; omitted for a transaction. */
  time<T>(kind: DatabaseWork, work: () => Promise<T>, text?: string): Promise<T> {
    const { tracing } = this.#parts;
    if (!tracing) return this.#kinds[kind].time(work);
    const statement = text === undefined ? transactionName : statementName(text);
    return this.#kinds[kind].time(() => tracing.ask(statement, work));
  }

  retried(sqlState: string): void {
    this.#parts.retries.of(sqlState).add();
  }
}
