import type { InferKyselyDB } from '@mikro-orm/postgresql';
import type { Compilable, Kysely } from 'kysely';
import { type EntitySql, timestamp } from '../connection/sql.ts';
import type { entities } from './entities.ts';

/** The tables of the entities, as types for the query builder. */
export type Tables = InferKyselyDB<(typeof entities)[number]>;

/** The driver's type of a column: times stay PostgreSQL's text; see `timeMs`. */
type Driven<Value> = Value extends Date ? string : Value;
type Rows<Query> =
  Query extends Compilable<infer Row> ? { [Column in keyof Row]: Driven<Row[Column]> }[] : never;

/**
 * Runs a query that is built with the entity manager's Kysely: for unions, windows and aggregates, which
 * `find` and MikroORM's own query builder lack. The query goes through `sql` like all statements, so it is
 * part of an open transaction, can be cancelled, and is measured.
 */
export async function select<Query extends Compilable<unknown>>(
  sql: EntitySql,
  build: (tables: Kysely<Tables>) => Query,
  signal?: AbortSignal,
): Promise<Rows<Query>> {
  const em = sql.em();
  // Only the text is built here. Inside a transaction Kysely would use the transaction itself.
  em.resetTransactionContext();
  const { sql: text, parameters } = build(em.getKysely<Tables>()).compile();
  const values = parameters.map((value) => (value instanceof Date ? timestamp(value) : value));
  return (await sql.query(text, values, signal)) as Rows<Query>;
}
