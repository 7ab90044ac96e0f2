import type { EntityManager } from '@mikro-orm/postgresql';

/**
 * What the statements of this folder run on: the pool, one statement a transaction, or one open transaction.
 * Parameters are always bound.
 */
export interface Sql {
  query<Row>(text: string, params: readonly unknown[], signal?: AbortSignal): Promise<Row[]>;
}

/** The same for statements that MikroORM writes. */
export interface EntitySql extends Sql {
  /** An entity manager of its own for one use, which reads and writes here; `signal` ends its statements. */
  em(signal?: AbortSignal): EntityManager;
}

/** One that is open until its work is done, or until somebody says that nothing more will be asked. */
export interface TransactionSql extends EntitySql {
  seal(): void;
}

/**
 * The row of a table with a key that comes from a part of the statement before it, to be joined: looked up in the key's index,
 * one by one, in the order in which that part comes. It may be locked with that, in the same order.
 *
 * Joined as tables are, a planner that takes a table for empty, because it was when it was last looked at, may as well go
 * through all of it and compare; and such a plan is kept while the table grows.
 */
export const lateralByKey = (table: string, key: string, value: string, how = 'offset 0'): string =>
  `lateral (select *, ctid as place from ${table} where ${table}.${key} = ${value} ${how})`;

/**
 * The same for a table that is written to, which cannot be looked up like that: a condition that is met through the key's index
 * or not at all, because as an array of one it is no reason to bring both sides into the same order.
 */
export const keyEquals = (key: string, value: string): string => `${key} = any (array[${value}])`;

/** The same for keys of several columns, in brackets. Of it the planner believes that it holds for one row in nine. */
export const keysEqual = (keys: string, values: string): string => `${keys} between ${values} and ${values}`;

/** The one of these words that has this number, the first of which is 0. */
export const sqlWord = (words: readonly string[], number: string): string =>
  `(array[${words.map((one) => `'${one}'`).join(', ')}])[${number} + 1]`;

/** The connection is gone, and with it the answers to the statements that were in flight. */
export class ConnectionLostError extends Error {
  override readonly name = 'ConnectionLostError';
  /** SQLSTATE connection_failure. */
  readonly code = '08006';
}

/** The wait for a synchronous standby was cancelled: the change is there, and a failover may lose it. */
export class UnconfirmedCommitError extends Error {
  override readonly name = 'UnconfirmedCommitError';
  /** SQLSTATE statement_completion_unknown. */
  readonly code = '40003';

  constructor() {
    super('the wait for the synchronous standby was cancelled');
  }
}

/** SQLSTATEs after which the same transaction may simply be run again. */
const retryable = new Set(['40001', '40P01']);

/** SQLSTATEs that say that the database cannot serve now: shutting down, starting, out of connections or disk, its rows locked. */
const unavailable = new Set([
  '57P01',
  '57P02',
  '57P03',
  '53300',
  '53100',
  '53200',
  '25006',
  '25P03',
  '55P03',
  '40003',
]);

/** Codes of Node's sockets and of the drivers for a database that is not there. */
const unreachable = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOENT',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENETUNREACH',
]);

export function sqlState(error: unknown): string | undefined {
  for (let at = error; typeof at === 'object' && at !== null; at = (at as { cause?: unknown }).cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === 'string') return code;
  }
  return undefined;
}

/** Whether a write was refused because its transaction is read-only. */
export const isReadOnly = (error: unknown): boolean => sqlState(error) === '25006';

export const isRetryable = (error: unknown): boolean => retryable.has(sqlState(error) ?? '');

/**
 * Whether a row had no partition to go to. Its code is that of all checks, of which this one alone is of a table and has
 * no name.
 */
export function lacksPartition(error: unknown): boolean {
  for (let at = error; typeof at === 'object' && at !== null; at = (at as { cause?: unknown }).cause) {
    const { code, table, constraint } = at as { code?: unknown; table?: unknown; constraint?: unknown };
    if (code === '23514') return table === 'job_events' && constraint === undefined;
  }
  return false;
}

/** Whether the statement was ended at our own request or by `statement_timeout`. */
export const isCancelled = (error: unknown): boolean =>
  sqlState(error) === '57014' || (error instanceof Error && error.name === 'AbortError');

const lostCodes = new Set(['08006', '57P01', '57P02', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH']);

/** Whether a connection that had been made was lost under a statement, for another reason than that it took too long. */
export function isConnectionLost(error: unknown): boolean {
  const code = sqlState(error);
  if (code !== undefined) return lostCodes.has(code);
  return error instanceof Error && /Connection terminated|is not queryable/.test(error.message);
}

export const isUnconfirmed = (error: unknown): boolean => sqlState(error) === '40003';

export function isUnavailable(error: unknown): boolean {
  const code = sqlState(error);
  if (code !== undefined) return unavailable.has(code) || unreachable.has(code) || code.startsWith('08');
  // The pg driver has no code for these.
  for (let at = error; at instanceof Error; at = at.cause) if (unavailableText.test(at.message)) return true;
  return false;
}

const unavailableText =
  /Connection terminated|timeout exceeded when trying to connect|is not queryable|Query read timeout|^timeout expired$/;

/** A time that a driver returned: raw text from a hot statement, a Date from an entity. */
export function timeMs(value: string | Date): number;
export function timeMs(value: string | Date | null): number | null;
export function timeMs(value: string | Date | null): number | null {
  if (value === null) return null;
  if (typeof value !== 'string') return value.getTime();
  return textMs(value);
}

/** A time as a parameter. ISO-8601 writes years from 10000 on with a sign and zeros, which PostgreSQL does not read. */
export const timestamp = (time: Date): string => time.toISOString().replace(/^\+0*/, '');

const dash = 45;
const blank = 32;
const point = 46;
const secondsEnd = 19;
/** The last day that was read, because nearly all times of an answer are of one. */
let day = '';
let dayMs = 0;

/**
 * A time as PostgreSQL writes it: `2026-01-31 23:59:59.123456+00`, with as many digits behind the point as are not zero. Read
 * digit by digit it takes a tenth of what `Date.parse` takes, and a grant has seven of them. What goes beyond milliseconds is cut off.
 */
function textMs(text: string): number {
  if (text.charCodeAt(4) !== dash || text.charCodeAt(10) !== blank) return otherTextMs(text);
  if (!text.startsWith(day) || day === '') {
    day = text.slice(0, 10);
    dayMs = Date.parse(day);
  }
  let ms = (twoDigits(text, 11) * 3600 + twoDigits(text, 14) * 60 + twoDigits(text, 17)) * 1000;
  if (text.charCodeAt(secondsEnd) === point) {
    for (let at = secondsEnd + 1, unit = 100; unit >= 1; at++, unit /= 10) {
      const digit = text.charCodeAt(at) - 48;
      if (digit < 0 || digit > 9) break;
      ms += digit * unit;
    }
  }
  return dayMs + ms;
}

const twoDigits = (text: string, at: number): number =>
  (text.charCodeAt(at) - 48) * 10 + text.charCodeAt(at + 1) - 48;

// PostgreSQL writes a blank and +00 where ISO-8601 has a T and a Z; read as it is, the year 49 would be 2049.
const otherTextMs = (text: string): number => Date.parse(`${text.slice(0, 10)}T${text.slice(11, -3)}Z`);
