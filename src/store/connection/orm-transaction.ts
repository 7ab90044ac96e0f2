import type { Transaction } from '@mikro-orm/core';
import type { Sql, TransactionSql } from './sql.ts';

/**
 * MikroORM never inspects a transaction. It only passes it to the connection, which is `EntityConnection`.
 */
export const asOrmTransaction = (sql: TransactionSql): Transaction => sql as unknown as Transaction;

export const asSql = (transaction: Transaction): Sql => transaction as unknown as Sql;
