/**
 * PostgreSQL's text form of an array. The drivers have one of their own, which asks two regular expressions about
 * every element; a batch of jobs has thousands, and nearly none needs escaping.
 */
export function textArray(values: readonly (string | null)[]): string {
  let literal = '{';
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as string | null;
    if (i > 0) literal += ',';
    literal +=
      value === null ? 'NULL' : `"${needsEscape.test(value) ? value.replace(escapable, '\\$&') : value}"`;
  }
  return `${literal}}`;
}

const needsEscape = /["\\]/;
const escapable = /["\\]/g;

export function numberArray(values: readonly (number | null)[]): string {
  let literal = '{';
  for (let i = 0; i < values.length; i++) {
    if (i > 0) literal += ',';
    literal += values[i] ?? 'NULL';
  }
  return `${literal}}`;
}

export const booleanArray = (values: readonly boolean[]): string => `{${values.join(',')}}`;
