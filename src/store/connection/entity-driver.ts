/**
 * MikroORM's driver for PostgreSQL, with one connection class replaced by `EntityConnection`.
 *
 * All statements of an EntityManager or a query builder go through `Database` or one of its transactions, as
 * all other statements do. They share the pool, retries, cancellation, metrics and the refusal of writes. An
 * EntityManager inside a transaction sees what that transaction has written.
 *
 * MikroORM 7.2 writes values into the text of statements. This driver binds them.
 */
import type { Configuration, LoggingOptions } from '@mikro-orm/core';
import { isRaw, type Transaction as OrmTransaction, type RawQueryFragment } from '@mikro-orm/core';
import { type NativeQueryBuilder, PostgreSqlConnection, PostgreSqlDriver } from '@mikro-orm/postgresql';
import { asOrmTransaction, asSql } from './orm-transaction.ts';
import { affectedRows } from './prepared-client.ts';
import { type EntitySql, type Sql, type TransactionSql, timestamp } from './sql.ts';

/** The target of all statements. */
export interface EntityTransactor extends EntitySql {
  transaction<T>(work: (sql: TransactionSql) => Promise<T>, signal?: AbortSignal): Promise<T>;
}

export class EntityConnection extends PostgreSqlConnection {
  #transactor: EntityTransactor | undefined;

  /** Sends all later statements through this database. No statement runs before the call. */
  attach(door: EntityTransactor): void {
    this.#transactor = door;
  }

  override async execute<T>(
    query: string | NativeQueryBuilder | RawQueryFragment,
    params: readonly unknown[] = [],
    method: 'all' | 'get' | 'run' = 'all',
    transaction?: OrmTransaction,
    context?: LoggingOptions & { signal?: AbortSignal },
  ): Promise<T> {
    const { sql, values } = bind(asText(query, params), (name) => this.platform.quoteIdentifier(name));
    const rows = await this.#sqlFor(transaction).query<object>(sql, values, context?.signal);
    if (method === 'get') return rows[0] as T;
    if (method === 'all') return rows as T;
    return { affectedRows: affectedRows(rows), insertId: undefined, row: rows[0], rows } as T;
  }

  override async transactional<T>(
    work: (transaction: OrmTransaction) => Promise<T>,
    options: { ctx?: OrmTransaction } = {},
  ): Promise<T> {
    if (options.ctx) return work(options.ctx);
    return this.#opened.transaction((sql) => work(asOrmTransaction(sql)));
  }

  get #opened(): EntityTransactor {
    if (!this.#transactor) throw new Error('the entity manager was used before its database was open');
    return this.#transactor;
  }

  #sqlFor(transaction: OrmTransaction | undefined): Sql {
    return transaction ? asSql(transaction) : this.#opened;
  }
}

export class EntityDriver extends PostgreSqlDriver {
  constructor(config: Configuration) {
    super(config);
    // Replaces the connection that the base class created and never connected.
    Object.assign(this, { connection: new EntityConnection(config) });
  }

  /** Keeps the driver's own errors, because callers recognise them by SQLSTATE and name. */
  override convertException(exception: Error): never {
    return exception as never;
  }
}

interface Fragment {
  sql: string;
  params: readonly unknown[];
}

function asText(query: string | NativeQueryBuilder | RawQueryFragment, params: readonly unknown[]): Fragment {
  if (typeof query === 'string') return { sql: query, params };
  const { sql, params: own } = isRaw(query) ? query : query.toRaw();
  return { sql, params: own };
}

/**
 * Replaces MikroORM's placeholders with PostgreSQL's: `?` is a value, `??` a name, and `\?` a question mark.
 */
export function bind(
  fragment: Fragment,
  quoteName: (name: string) => string,
): { sql: string; values: unknown[] } {
  const values: unknown[] = [];
  const put = ({ sql, params }: Fragment): string => {
    let next = 0;
    // A text without values is sent unchanged: a question mark in it is an operator.
    if (params.length === 0) return sql;
    return sql.replace(/\\\?|\?\??/g, (placeholder) => {
      if (placeholder === '\\?') return '?';
      if (next >= params.length) throw new Error('a statement has more placeholders than values');
      const value = params[next++];
      if (placeholder === '??') return quoteName(String(value));
      if (isRaw(value)) return put(value);
      if (Array.isArray(value)) return value.map(place).join(', ');
      return place(value);
    });
  };
  const place = (value: unknown): string => {
    values.push(value instanceof Date ? timestamp(value) : value);
    return `$${values.length}`;
  };
  return { sql: put(fragment), values };
}
