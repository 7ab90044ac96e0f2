import type { MikroORM } from '@mikro-orm/postgresql';
import type { Log } from '../log.ts';
import type { DatabaseMeter, DatabaseWork } from '../telemetry/meters.ts';
import { isRetryable, lacksPartition, type Sql, sqlState, type TransactionSql } from './sql.ts';
import { makeEventDays } from './statements/event-days.ts';
import { type Connection, Transaction } from './transaction.ts';

export interface DatabaseOptions {
  /** A `postgres://` address. Without one the database is embedded, in `dataDir`. */
  url?: string | undefined;
  dataDir: string;
  /** Connections at the most; the embedded engine has one. */
  poolMax: number;
  log: Log;
}

export interface DatabaseParts {
  engine: 'postgresql' | 'embedded';
  orm: MikroORM;
  closeEngine: () => Promise<void>;
  lost: Promise<Error>;
}

/** The driver's pool, of which we borrow connections and are told how it is. */
interface Pool {
  connect(): Promise<Connection>;
  ending: boolean;
  end(): Promise<void>;
  totalCount: number;
  idleCount: number;
  waitingCount: number;
  options: { max: number };
}

export interface Connections {
  open: number;
  idle: number;
  /** Work that waits for a connection. */
  waiting: number;
  max: number;
}

/** How often a transaction that lost against another is run again before its caller is told. */
const attemptsMax = 5;

/**
 * The one door to the database, whichever engine is behind it. `query` runs one statement in a transaction of its
 * own; `transaction` runs several. Both run again by themselves after a serialization failure or a deadlock, and where
 * there was no part of the history to write to, once it has been made. A
 * signal that fires takes a waiting statement out of the queue and asks PostgreSQL to stop a running one.
 *
 * Opened with `openDatabase`, brought up to date with `migrate`, and over with `close`, which waits for what runs.
 */
export class Database implements Sql {
  readonly engine: 'postgresql' | 'embedded';
  /** Settles with the reason if the embedded engine dies under us; a PostgreSQL that is gone may come back. */
  readonly lost: Promise<Error>;
  readonly #orm: MikroORM;
  readonly #closeEngine: () => Promise<void>;
  #mending: Promise<unknown> | undefined;
  #pool: Pool | undefined;
  /** Looks on at everything that is asked. Whoever opens a database may not know yet who will. */
  meter: DatabaseMeter | undefined;

  constructor({ engine, orm, closeEngine, lost }: DatabaseParts) {
    this.engine = engine;
    this.lost = lost;
    this.#orm = orm;
    this.#closeEngine = closeEngine;
  }

  query<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    return this.#metered('statement', () => this.#again(() => this.#statement<Row>(text, params, signal)));
  }

  transaction<T>(work: (sql: TransactionSql) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#metered('transaction', () => this.#again(() => this.#attempt(work, signal)));
  }

  async #statement<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    const connection = await this.#connect();
    try {
      return await connection.run<Row>(text, params, signal);
    } finally {
      connection.release();
    }
  }

  async #attempt<T>(work: (sql: TransactionSql) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const connection = await this.#connect();
    const transaction = new Transaction(connection, signal);
    let broken: Error | undefined;
    try {
      const answer = await work(transaction);
      await transaction.commit();
      return answer;
    } catch (error) {
      // Where the connection has died the rollback fails as well, and says less about why.
      broken = await transaction.rollBack();
      throw transaction.causeOf(error);
    } finally {
      connection.release(broken);
    }
  }

  /** Answers once the database has answered. */
  async ping(signal?: AbortSignal): Promise<void> {
    await this.#statement('select 1', [], signal);
  }

  async close(): Promise<void> {
    await this.#orm.close(true);
    // Whoever built the statements of entities ends the pool as well, but only where there were any.
    if (this.#pool && !this.#pool.ending) await this.#pool.end();
    await this.#closeEngine();
  }

  /** For migrations and the schema's own tests. */
  get orm(): MikroORM {
    return this.#orm;
  }

  /** How many connections there are and may be, and how many wait for one; counted when asked. */
  async connections(): Promise<Connections> {
    this.#pool ??= (await this.#orm.em.getConnection().getNativeClient()) as unknown as Pool;
    const { totalCount: open, idleCount: idle, waitingCount: waiting, options } = this.#pool;
    return { open, idle, waiting, max: options.max };
  }

  async #again<T>(work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        if (attempt >= attemptsMax) throw error;
        if (lacksPartition(error)) await this.#makeDays();
        else if (!isRetryable(error)) throw error;
        this.meter?.retried(sqlState(error) ?? '');
      }
    }
  }

  /** Nobody has made any for long, or the clock was set. All who find that out at the same time wait for the same. */
  async #makeDays(): Promise<void> {
    this.#mending ??= makeEventDays(this).finally(() => {
      this.#mending = undefined;
    });
    await this.#mending;
  }

  #metered<T>(kind: DatabaseWork, work: () => Promise<T>): Promise<T> {
    return this.meter ? this.meter.time(kind, work) : work();
  }

  async #connect(): Promise<Connection> {
    this.#pool ??= (await this.#orm.em.getConnection().getNativeClient()) as unknown as Pool;
    return this.#pool.connect();
  }
}
