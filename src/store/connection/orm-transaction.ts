import type { Transaction } from '@mikro-orm/core';
import type { Sql, TransactionSql } from './sql.ts';

/** MikroORM looks at no transaction: it hands it on to the connection, which is `EntityConnection`. */
export const asOrmTransaction = (sql: TransactionSql): Transaction => sql as unknown as Transaction;

export const asSql = (transaction: Transaction): Sql => transaction as unknown as Sql;
