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
  /** Connections at the most; the embedded engine has one. */
  poolMax: number;
  log: Log;
}

export interface DatabaseParts {
  engine: 'postgresql' | 'embedded';
  orm: MikroORM;
  closeEngine: () => Promise<void>;
  /** Closes connections that were asked to end, and have not. */
  closeEnding?: () => void;
  lost: Promise<Error>;
}

/** The driver's pool, of which we borrow connections and are told how it is. */
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
  /** Work that waits for a connection. */
  waiting: number;
  max: number;
}

/** How long connections may take to end; one that died in silence never does. */
const closingMs = 1_000;
/** For how long it is believed that PostgreSQL waits for no standby. */
const replicationKnownMs = 3_000;

/** How often a transaction that lost against another is run again before its caller is told. */
const attemptsMax = 5;

/** The connection was lost, and nothing can have been changed that must not be changed again. */
class LostBeforeCommit extends Error {
  constructor(cause: unknown) {
    super('the connection was lost before a commit', { cause });
  }
}

/**
 * The one door to the database, whichever engine is behind it. `query` runs one statement in a transaction of its
 * own; `transaction` runs several. Both run again by themselves after a serialization failure or a deadlock, and where
 * there was no part of the history to write to, once it has been made. After a lost connection a statement runs again where it
 * only reads or is marked as `repeatable`, and a transaction where its commit had not been sent. A
 * signal that fires takes a waiting statement out of the queue and asks PostgreSQL to stop a running one.
 *
 * Opened with `openDatabase`, brought up to date with `migrate`, and over with `close`, which waits for what runs.
 */
export class Database implements EntitySql {
  readonly engine: 'postgresql' | 'embedded';
  /** Settles with the reason if the embedded engine dies under us; a PostgreSQL that is gone may come back. */
  readonly lost: Promise<Error>;
  readonly #orm: MikroORM;
  readonly #closeEngine: () => Promise<void>;
  readonly #closeEnding: () => void;
  #repairing: Promise<unknown> | undefined;
  #pool: Pool | undefined;
  /** When it was last seen that PostgreSQL waits for no standby, by `performance.now()`. */
  #asynchronousAt = Number.NEGATIVE_INFINITY;
  /** Why writes are refused; see `refuseWrites`. */
  #refusal: string | undefined;
  readonly #refusalListeners: (() => void)[] = [];
  /** Connections whose session is read-only because of it. */
  readonly #readOnly = new WeakSet<object>();
  /** Looks on at everything that is asked. Whoever opens a database may not know yet who will. */
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
      // Where the connection has died the rollback fails as well, and says less about why.
      broken = await transaction.rollBack();
      const cause = transaction.causeOf(error);
      throw !transaction.isCommitSent && isConnectionLost(cause) ? new LostBeforeCommit(cause) : cause;
    } finally {
      connection.release(broken);
    }
  }

  /** Answers once the database has answered. */
  async ping(signal?: AbortSignal): Promise<void> {
    await this.#retry(() => this.#statement('select 1', [], signal));
  }

  /** What was just seen of PostgreSQL's settings. */
  noteReplication(synchronous: boolean): void {
    this.#asynchronousAt = synchronous ? Number.NEGATIVE_INFINITY : performance.now();
  }

  /**
   * Settles when all that this server can see by now is also on the synchronous standby, where there is one.
   *
   * A row becomes visible without its standby when the wait of its commit was cancelled, or when the primary was restarted
   * during the wait. So an answer that acknowledges what an earlier call has written needs a commit of its own that has waited.
   */
  async awaitStandby(signal?: AbortSignal): Promise<void> {
    if (this.engine === 'embedded' || performance.now() - this.#asynchronousAt < replicationKnownMs) return;
    await awaitStandby(this, signal);
  }

  async close(): Promise<void> {
    const late = setInterval(() => this.#closeEnding(), closingMs);
    await this.#orm.close(true);
    // Whoever built the statements of entities ends the pool as well, but only where there were any.
    if (this.#pool && !this.#pool.ending) await this.#pool.end();
    clearInterval(late);
    await this.#closeEngine();
  }

  /**
   * Makes every transaction that begins from now on read-only, or writable again where no reason is given. PostgreSQL
   * refuses the writes, so that no statement can be forgotten; callers get a `SchemaTooNewError`. The session of a
   * connection is changed when the pool next lends it, ahead of the statements that follow.
   */
  async refuseWrites(reason: string | undefined): Promise<void> {
    const pool = await this.#openPool();
    this.#refusal = reason;
    if (reason !== undefined && !pool.listeners('acquire').includes(this.#applyRefusal))
      pool.on('acquire', this.#applyRefusal);
    for (const listener of this.#refusalListeners) listener();
  }

  /** Why writes are refused, while they are. */
  get refusal(): string | undefined {
    return this.#refusal;
  }

  /** Calls back whenever `refusal` may have changed. */
  onRefusal(listener: () => void): void {
    this.#refusalListeners.push(listener);
  }

  readonly #applyRefusal = (connection: Connection): void => {
    const isRefusing = this.#refusal !== undefined;
    if (this.#readOnly.has(connection) === isRefusing) return;
    if (isRefusing) this.#readOnly.add(connection);
    else this.#readOnly.delete(connection);
    const mode = isRefusing ? 'on' : 'off';
    // A connection on which this fails is broken, which the statement behind it reports.
    connection.run(`set default_transaction_read_only = ${mode}`, [], undefined).catch(() => {});
  };

  /** For migrations and the schema's own tests. */
  get orm(): MikroORM {
    return this.#orm;
  }

  /** How many connections there are and may be, and how many wait for one; counted when asked. */
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

  /** Nobody has made any for long, or the clock was set. All who find that out at the same time wait for the same. */
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
