import type { EntityManager } from '@mikro-orm/postgresql';
import { asOrmTransaction } from './orm-transaction.ts';
import type { PreparedClient } from './prepared-client.ts';
import { sqlState, type TransactionSql } from './sql.ts';

/** SQLSTATE of every statement that follows a failed one in its transaction. */
const abortedState = '25P02';

/** A connection borrowed from the pool. A connection released with an error is closed. */
export type Connection = Pick<PreparedClient, 'run'> & { release(error?: Error): void };

/**
 * A transaction on its own connection. It begins with its first statement; without a statement nothing is
 * sent.
 *
 * Statements are sent when they are issued, and run in that order. A caller that issues the next statement
 * before the answer arrives saves a round trip. At a few hundred microseconds, round trips are most of the
 * time of small transactions. That is why statements go to the driver: a query builder starts a statement of
 * a connection only after the last has been answered.
 */
export class Transaction implements TransactionSql {
  readonly #connection: Connection;
  readonly #signal: AbortSignal | undefined;
  readonly #sent: Promise<unknown>[] = [];
  #begun: Promise<unknown> | undefined;
  #committed: Promise<unknown> | undefined;
  #over = false;
  /** A statement was issued but never sent, so the transaction is incomplete. */
  #isPartial = false;
  #failure: { error: unknown } | undefined;
  readonly #newEm: (signal?: AbortSignal) => EntityManager;

  constructor(
    connection: Connection,
    signal: AbortSignal | undefined,
    newEm: (signal?: AbortSignal) => EntityManager,
  ) {
    this.#newEm = newEm;
    this.#connection = connection;
    this.#signal = signal;
  }

  query<Row>(text: string, params: readonly unknown[], signal = this.#signal): Promise<Row[]> {
    // Work that continues after another part has failed must not run statements outside of the transaction.
    if (this.#over) return Promise.reject(new Error('the transaction is over'));
    const begun = this.#begun;
    this.#begun ??= this.#connection.run('begin', [], undefined);
    this.#isPartial ||= signal?.aborted ?? false;
    const rows = this.#connection.run<Row>(text, params, signal);
    rows.catch((error: unknown) => {
      this.#failure ??= { error };
    });
    this.#sent.push(rows);
    return begun ? rows : this.#first(this.#begun, rows);
  }

  em(signal = this.#signal): EntityManager {
    const em = this.#newEm(signal);
    em.setTransactionContext(asOrmTransaction(this));
    return em;
  }

  /** Whether the transaction may have been committed. */
  get isCommitSent(): boolean {
    return this.#committed !== undefined;
  }

  /** The original failure: statements behind the failed one only report that the transaction is aborted. */
  causeOf(error: unknown): unknown {
    return sqlState(error) === abortedState && this.#failure ? this.#failure.error : error;
  }

  /**
   * Ends the list of statements. The commit is sent behind them, and runs while the answers are read.
   *
   * - If an earlier statement has failed, the database rolls back instead; later errors in this process
   *   change nothing.
   * - If a statement was never sent, the database cannot know that, so no commit is sent.
   */
  seal(): void {
    if (this.#over) return;
    this.#over = true;
    if (!this.#begun || this.#isPartial) return;
    this.#committed = this.#connection.run('commit', [], undefined);
    // Callers that await the commit get its error.
    this.#committed.catch(() => {});
  }

  async commit(): Promise<void> {
    this.seal();
    if (this.#isPartial) await Promise.allSettled(this.#sent);
    await this.#committed;
    // The database has rolled back and reports that only in the command tag.
    if (this.#failure) throw this.#failure.error;
  }

  /** Returns the connection's error, if it is no longer usable. */
  async rollBack(): Promise<Error | undefined> {
    this.#over = true;
    if (!this.#begun) return undefined;
    // After a commit there is nothing to roll back. The connection is usable if the commit succeeded.
    if (this.#committed) {
      await Promise.allSettled(this.#sent);
      return this.#committed.then(() => undefined, asError);
    }
    // A cancel that is still in flight would hit the next statement.
    await Promise.allSettled(this.#sent);
    try {
      await this.#connection.run('rollback', [], undefined);
      return undefined;
    } catch (error) {
      return asError(error);
    }
  }

  async #first<Row>(begun: Promise<unknown>, rows: Promise<Row[]>): Promise<Row[]> {
    const [, first] = await Promise.all([begun, rows]);
    return first;
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
