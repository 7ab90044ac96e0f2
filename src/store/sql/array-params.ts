import type { Json } from '../../domain/jobs/job.ts';

/**
 * PostgreSQL's text form of an array. The drivers have one of their own, which asks two regular expressions about
 * every element; a batch of jobs has thousands, and nearly none needs escaping.
 */
export function textArray(values: readonly (string | null)[]): string {
  if (values.length === 0) return '{}';
  if (values.every((value) => value === null)) return `{NULL${',NULL'.repeat(values.length - 1)}}`;
  // One look at all of them together; only where something needs escaping is each looked at by itself.
  if (!values.includes(null) && !special.test(values.join(''))) return `{"${values.join('","')}"}`;
  return `{${values.map((value) => (value === null ? 'NULL' : quoted(value))).join(',')}}`;
}

const special = /["\\]/;

const quoted = (value: string): string => `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

/** Ids have nothing in them that needs quoting. */
export const uuidArray = (ids: readonly string[]): string => `{${ids.join(',')}}`;

/** Numbers that JavaScript has no exact number for. */
export const digitArray = (values: readonly (string | bigint)[]): string => `{${values.join(',')}}`;

export const numberArray = (values: readonly (number | null)[]): string =>
  `{${values.map((value) => value ?? 'NULL').join(',')}}`;

/** A column of a batch in which no value is null: one of which all are the same, as most are, is sent once. */
export function sendOnceIfConstant<Value>(
  values: readonly Value[],
  toArray: (values: readonly Value[]) => string,
): string {
  const [first] = values;
  return toArray(values.every((value) => value === first) ? values.slice(0, 1) : values);
}

/** A column of a batch, which is not sent at all where it has nothing in it. */
export const nullIfAllNull = <Value>(
  values: readonly (Value | null)[],
  toArray: (values: readonly (Value | null)[]) => string,
): string | null => (values.every((value) => value === null) ? null : toArray(values));

/** The same column of a batch in a statement, from the rows of which only the first has one where it is the same for all. */
export const firstOrOwn = (column: string, array: string): string => `coalesce(${column}, (${array})[1])`;

/** The columns of a batch, by name. */
export const columnsOf =
  <Row>(rows: readonly Row[]) =>
  <Name extends keyof Row>(name: Name): Row[Name][] =>
    rows.map((row) => row[name]);

/** `{3,-1,0}` as numbers. */
export const integers = (text: string | null): number[] =>
  text === null ? [] : text.slice(1, -1).split(',').map(Number);

export const booleanArray = (values: readonly boolean[]): string => `{${values.join(',')}}`;

/** Any JSON as one JSON array; null, which is no array, where there is nothing but nulls. */
export const jsonsOrNull = (values: readonly Json[]): string | null => nullIfAllNull(values, JSON.stringify);

/** JSON texts as one JSON array, which needs no escaping at all. */
export const jsonArray = (texts: readonly string[]): string => `[${texts.join(',')}]`;
