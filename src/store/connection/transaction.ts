import type { EntityManager } from '@mikro-orm/postgresql';
import { asOrmTransaction } from './orm-transaction.ts';
import type { PreparingClient } from './prepared-client.ts';
import { sqlState, type TransactionSql } from './sql.ts';

/** What every statement is told that comes behind one that failed. */
const abortedState = '25P02';

/** A connection that is borrowed from the pool. One that is given back with an error is closed. */
export type Connection = Pick<PreparingClient, 'run'> & { release(error?: Error): void };

/**
 * A transaction on a connection of its own. It begins with its first statement, and one in which nothing was asked has
 * never been.
 *
 * Statements are sent when they are asked for, and run in that order: who does not wait for an answer before asking on
 * saves the way there and back, which at a few hundred microseconds is what small transactions mostly consist of. That is why
 * they go to the driver: a query builder lets no statement of a connection begin before the last has been answered.
 */
export class Transaction implements TransactionSql {
  readonly #connection: Connection;
  readonly #signal: AbortSignal | undefined;
  readonly #sent: Promise<unknown>[] = [];
  #begun: Promise<unknown> | undefined;
  #committed: Promise<unknown> | undefined;
  #over = false;
  /** Something was asked that never went out, so that what did is not all of it. */
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
    // Whoever asks on beside something that has failed must not do so on somebody else's behalf.
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

  /** Whether it may have been committed. */
  get isCommitSent(): boolean {
    return this.#committed !== undefined;
  }

  /** Why it failed: those behind the statement that did are told no more than that there was one. */
  causeOf(error: unknown): unknown {
    return sqlState(error) === abortedState && this.#failure ? this.#failure.error : error;
  }

  /**
   * Nothing more is asked: the commit is sent behind what was, and is under way while the answers are read. Where a statement
   * before it has failed, the database rolls back instead; what goes wrong here after it changes nothing any more. Of a
   * statement that was not even sent the database knows nothing, and then there is no commit.
   */
  seal(): void {
    if (this.#over) return;
    this.#over = true;
    if (!this.#begun || this.#isPartial) return;
    this.#committed = this.#connection.run('commit', [], undefined);
    // Whoever waits for it is told.
    this.#committed.catch(() => {});
  }

  async commit(): Promise<void> {
    this.seal();
    if (this.#isPartial) await Promise.allSettled(this.#sent);
    await this.#committed;
    // The database has rolled back, and said so in nothing but the name of what it did.
    if (this.#failure) throw this.#failure.error;
  }

  /** Answers with what is wrong with the connection, if anything. */
  async rollBack(): Promise<Error | undefined> {
    this.#over = true;
    if (!this.#begun) return undefined;
    // After a commit there is nothing to roll back, and the connection is as good as what the commit came to.
    if (this.#committed) {
      await Promise.allSettled(this.#sent);
      return this.#committed.then(() => undefined, asError);
    }
    // A request to stop one of them that is still on its way would hit what comes next.
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
