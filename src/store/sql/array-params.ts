import type { Json } from '../../domain/jobs/job.ts';

/**
 * PostgreSQL's text form of an array. The driver's own encoder runs two regular expressions on every element;
 * a batch of jobs has thousands, and nearly none needs escaping.
 */
export function textArray(values: readonly (string | null)[]): string {
  if (values.length === 0) return '{}';
  if (values.every((value) => value === null)) return `{NULL${',NULL'.repeat(values.length - 1)}}`;
  // One test of all elements together; only if one needs escaping is each tested by itself.
  if (!values.includes(null) && !special.test(values.join(''))) return `{"${values.join('","')}"}`;
  return `{${values.map((value) => (value === null ? 'NULL' : quoted(value))).join(',')}}`;
}

const special = /["\\]/;

const quoted = (value: string): string => `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

/** Ids contain nothing that needs quoting. */
export const uuidArray = (ids: readonly string[]): string => `{${ids.join(',')}}`;

/** Integers beyond JavaScript's exact range. */
export const digitArray = (values: readonly (string | bigint)[]): string => `{${values.join(',')}}`;

export const numberArray = (values: readonly (number | null)[]): string =>
  `{${values.map((value) => value ?? 'NULL').join(',')}}`;

/** A column of a batch without nulls. If all values are equal, as they mostly are, it is sent once. */
export function sendOnceIfConstant<Value>(
  values: readonly Value[],
  toArray: (values: readonly Value[]) => string,
): string {
  const [first] = values;
  return toArray(values.every((value) => value === first) ? values.slice(0, 1) : values);
}

/** A column of a batch, which is not sent if all values are null. */
export const nullIfAllNull = <Value>(
  values: readonly (Value | null)[],
  toArray: (values: readonly (Value | null)[]) => string,
): string | null => (values.every((value) => value === null) ? null : toArray(values));

/** The column inside a statement: if `sendOnceIfConstant` sent one value, only the first row has it. */
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

/** JSON values as one JSON array; null if all are null. */
export const jsonsOrNull = (values: readonly Json[]): string | null => nullIfAllNull(values, JSON.stringify);

/** JSON texts as one JSON array, which needs no escaping. */
export const jsonArray = (texts: readonly string[]): string => `[${texts.join(',')}]`;
