import type { PreparingClient } from './prepared.ts';
import type { Sql } from './sql.ts';

/** A connection that is borrowed from the pool. One that is given back with an error is closed. */
export type Connection = Pick<PreparingClient, 'run'> & { release(error?: Error): void };

/**
 * A transaction on a connection of its own. It begins with its first statement, and one in which nothing was asked has
 * never been.
 *
 * Statements are sent when they are asked for, and run in that order: who does not wait for an answer before asking on
 * saves the way there and back, which at a few hundred microseconds is what small transactions mostly consist of.
 */
export class Transaction implements Sql {
  readonly #connection: Connection;
  readonly #signal: AbortSignal | undefined;
  #begun: Promise<unknown> | undefined;

  constructor(connection: Connection, signal: AbortSignal | undefined) {
    this.#connection = connection;
    this.#signal = signal;
  }

  query<Row>(text: string, params: readonly unknown[], signal = this.#signal): Promise<Row[]> {
    if (this.#begun) return this.#connection.run<Row>(text, params, signal);
    this.#begun = this.#connection.run('begin', [], undefined);
    return this.#first(this.#begun, this.#connection.run<Row>(text, params, signal));
  }

  async commit(): Promise<void> {
    if (this.#begun) await this.#connection.run('commit', [], undefined);
  }

  /** Answers with what is wrong with the connection, if anything. */
  async rollBack(): Promise<Error | undefined> {
    if (!this.#begun) return undefined;
    try {
      await this.#connection.run('rollback', [], undefined);
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  async #first<Row>(begun: Promise<unknown>, rows: Promise<Row[]>): Promise<Row[]> {
    const [, first] = await Promise.all([begun, rows]);
    return first;
  }
}
