import type { EventEmitter } from 'node:events';
import type { EntityManager, MikroORM } from '@mikro-orm/postgresql';
import type { Log } from '../lib/log.ts';
import type { DatabaseMeter, DatabaseWork } from '../telemetry/service-metrics.ts';
import { awaitStandby } from './connection/await-standby.ts';
import { isRepeatable } from './connection/repeatable.ts';
import {
  type EntitySql,
  isConnectionLost,
  isReadOnly,
  isRetryable,
  lacksPartition,
  sqlState,
  type TransactionSql,
} from './connection/sql.ts';
import { type Connection, Transaction } from './connection/transaction.ts';
import { SchemaTooNewError } from './schema-too-new.ts';
import { createEventPartitions } from './sql/events/partitions.ts';

export interface DatabaseOptions {
  /** A `postgres://` address. Without one the database is embedded, in `dataDir`. */
  url?: string | undefined;
  dataDir: string;
  /** Maximum number of connections; the embedded engine has one. */
  poolMax: number;
  log: Log;
}

export interface DatabaseParts {
  engine: 'postgresql' | 'embedded';
  orm: MikroORM;
  closeEngine: () => Promise<void>;
  /** Closes connections that are asked to end and have not ended. */
  closeEnding?: () => void;
  lost: Promise<Error>;
}

/** The driver's pool, which lends connections and reports its figures. */
interface Pool extends EventEmitter {
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
  /** Number of requests that wait for a connection. */
  waiting: number;
  max: number;
}

/** Time that connections have to end; a connection that died silently never ends. */
const closingMs = 1_000;
/** How long a check that PostgreSQL waits for no standby stays valid. */
const replicationKnownMs = 3_000;

/** How often a transaction runs in all, retries included, before its caller gets the error. */
const attemptsMax = 5;

/** The connection was lost, and the work is safe to run again. */
class LostBeforeCommit extends Error {
  constructor(cause: unknown) {
    super('the connection was lost before a commit', { cause });
  }
}

/**
 * The only access to the database, on either engine.
 *
 * Guarantees:
 *
 * - `query` runs one statement in a transaction of its own; `transaction` runs several statements in one.
 * - Both retry after a serialization failure, after a deadlock, and after creating a missing partition of
 *   `job_events`.
 * - After a lost connection, a statement is retried if it only reads or is marked `repeatable`. A transaction
 *   is retried if its commit was not sent.
 * - A signal that fires takes a waiting statement out of the queue and makes PostgreSQL cancel a running one.
 *
 * Lifecycle: `openDatabase` opens it, `migrate` updates its schema, and `close` waits for running work.
 */
export class Database implements EntitySql {
  readonly engine: 'postgresql' | 'embedded';
  /**
   * Settles with the reason if the embedded engine dies. A lost PostgreSQL may return, so it never settles
   * there.
   */
  readonly lost: Promise<Error>;
  readonly #orm: MikroORM;
  readonly #closeEngine: () => Promise<void>;
  readonly #closeEnding: () => void;
  #repairing: Promise<unknown> | undefined;
  #pool: Pool | undefined;
  /** Time of the last check that PostgreSQL waits for no standby, by `performance.now()`. */
  #asynchronousAt = Number.NEGATIVE_INFINITY;
  /** Reason why writes are refused; see `refuseWrites`. */
  #refusal: string | undefined;
  readonly #refusalListeners: (() => void)[] = [];
  /** Connections whose session is read-only because of `#refusal`. */
  readonly #readOnly = new WeakSet<object>();
  /** Measures all statements and transactions. Set after opening, because the meter may not exist before. */
  meter: DatabaseMeter | undefined;

  constructor({ engine, orm, closeEngine, closeEnding = () => {}, lost }: DatabaseParts) {
    this.engine = engine;
    this.lost = lost;
    this.#orm = orm;
    this.#closeEngine = closeEngine;
    this.#closeEnding = closeEnding;
  }

  query<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    return this.#metered(
      'statement',
      () => this.#retry(() => this.#statement<Row>(text, params, signal)),
      text,
    );
  }

  em(signal?: AbortSignal): EntityManager {
    return this.#orm.em.fork(signal ? { signal } : {});
  }

  transaction<T>(work: (sql: TransactionSql) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#metered('transaction', () => this.#retry(() => this.#attempt(work, signal)));
  }

  async #statement<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]> {
    const connection = await this.#connect();
    try {
      return await connection.run<Row>(text, params, signal);
    } catch (error) {
      throw isRepeatable(text) && isConnectionLost(error) ? new LostBeforeCommit(error) : error;
    } finally {
      connection.release();
    }
  }

  async #attempt<T>(work: (sql: TransactionSql) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const connection = await this.#connect();
    const transaction = new Transaction(connection, signal, (given) => this.em(given));
    let broken: Error | undefined;
    try {
      const answer = await work(transaction);
      await transaction.commit();
      return answer;
    } catch (error) {
      // If the connection has died, the rollback fails as well, and its error explains less.
      broken = await transaction.rollBack();
      const cause = transaction.causeOf(error);
      throw !transaction.isCommitSent && isConnectionLost(cause) ? new LostBeforeCommit(cause) : cause;
    } finally {
      connection.release(broken);
    }
  }

  /** Resolves when the database has answered. */
  async ping(signal?: AbortSignal): Promise<void> {
    await this.#retry(() => this.#statement('select 1', [], signal));
  }

  /** Records whether PostgreSQL's settings require a synchronous standby. */
  noteReplication(synchronous: boolean): void {
    this.#asynchronousAt = synchronous ? Number.NEGATIVE_INFINITY : performance.now();
  }

  /**
   * Settles when everything that this server can see now is also on the synchronous standby, if there is one.
   *
   * A row becomes visible without its standby if the wait of its commit was cancelled, or if the primary
   * restarted during the wait. So an answer that acknowledges an earlier call's writes needs a commit that
   * has waited itself.
   */
  async awaitStandby(signal?: AbortSignal): Promise<void> {
    if (this.engine === 'embedded' || performance.now() - this.#asynchronousAt < replicationKnownMs) return;
    await awaitStandby(this, signal);
  }

  async close(): Promise<void> {
    const late = setInterval(() => this.#closeEnding(), closingMs);
    await this.#orm.close(true);
    // MikroORM ends the pool only if entity statements have run.
    if (this.#pool && !this.#pool.ending) await this.#pool.end();
    clearInterval(late);
    await this.#closeEngine();
  }

  /**
   * Makes every later transaction read-only, or writable again if no reason is given. PostgreSQL itself
   * refuses the writes, so no statement can escape; callers get a `SchemaTooNewError`. The session of a
   * connection changes when the pool next lends it, ahead of the statements that follow.
   */
  async refuseWrites(reason: string | undefined): Promise<void> {
    const pool = await this.#openPool();
    this.#refusal = reason;
    if (reason !== undefined && !pool.listeners('acquire').includes(this.#applyRefusal))
      pool.on('acquire', this.#applyRefusal);
    for (const listener of this.#refusalListeners) listener();
  }

  /** Reason why writes are refused; undefined while they are allowed. */
  get refusal(): string | undefined {
    return this.#refusal;
  }

  /** Calls `listener` whenever `refusal` may have changed. */
  onRefusal(listener: () => void): void {
    this.#refusalListeners.push(listener);
  }

  readonly #applyRefusal = (connection: Connection): void => {
    const isRefusing = this.#refusal !== undefined;
    if (this.#readOnly.has(connection) === isRefusing) return;
    if (isRefusing) this.#readOnly.add(connection);
    else this.#readOnly.delete(connection);
    const mode = isRefusing ? 'on' : 'off';
    // If this fails, the connection is broken, and the next statement reports it.
    connection.run(`set default_transaction_read_only = ${mode}`, [], undefined).catch(() => {});
  };

  /** For migrations and the schema's own tests. */
  get orm(): MikroORM {
    return this.#orm;
  }

  /** Open, idle and maximum connections, and waiting requests, at the time of the call. */
  async connections(): Promise<Connections> {
    const pool = await this.#openPool();
    const { totalCount: open, idleCount: idle, waitingCount: waiting, options } = pool;
    return { open, idle, waiting, max: options.max };
  }

  async #retry<T>(work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (thrown) {
        const isSafe = thrown instanceof LostBeforeCommit;
        const error = isSafe ? thrown.cause : thrown;
        if (this.#refusal !== undefined && isReadOnly(error))
          throw new SchemaTooNewError(this.#refusal, { cause: error });
        if (attempt >= attemptsMax) throw error;
        if (lacksPartition(error)) await this.#createPartitions();
        else if (!isSafe && !isRetryable(error)) throw error;
        this.meter?.retried(sqlState(error) ?? '');
      }
    }
  }

  /**
   * Creates partitions if no server has for long, or if the clock was set. Concurrent callers share one
   * attempt.
   */
  async #createPartitions(): Promise<void> {
    this.#repairing ??= createEventPartitions(this).finally(() => {
      this.#repairing = undefined;
    });
    await this.#repairing;
  }

  #metered<T>(kind: DatabaseWork, work: () => Promise<T>, text?: string): Promise<T> {
    return this.meter ? this.meter.time(kind, work, text) : work();
  }

  async #connect(): Promise<Connection> {
    return (await this.#openPool()).connect();
  }

  async #openPool(): Promise<Pool> {
    this.#pool ??= (await this.#orm.em.getConnection().getNativeClient()) as unknown as Pool;
    return this.#pool;
  }
}
