import { invalid } from '../errors.ts';

/** Deep enough for every real document, shallow enough for every parser between client and worker. */
export const maxJsonDepth = 32;

/**
 * Rejects values that cannot travel unchanged from a client through PostgreSQL's `jsonb` to a worker, and
 * names them:
 * - NUL in a string;
 * - half of a surrogate pair;
 * - numbers that JSON cannot express;
 * - a `__proto__` key, which many parsers treat specially;
 * - nesting beyond `maxJsonDepth`.
 *
 * No value is repaired and none is dropped silently.
 */
export function checkJson(value: unknown, path: string): void {
  // Nearly all values are valid, and tracking paths costs more than the check itself. So only a second pass
  // builds paths.
  if (!isFine(value, 0)) blame(value, path, 0);
}

function isFine(value: unknown, depth: number): boolean {
  if (typeof value === 'string') return isPlainText(value);
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || value === null) return true;
  if (depth > maxJsonDepth) return false;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (!isFine(value[i], depth + 1)) return false;
    return true;
  }
  for (const key of Object.keys(value)) {
    if (key === '__proto__' || !isPlainText(key)) return false;
    if (!isFine((value as Record<string, unknown>)[key], depth + 1)) return false;
  }
  return true;
}

/** Throws for the first value that `isFine` rejects, with its path. */
function blame(value: unknown, path: string, depth: number): void {
  if (typeof value === 'string') {
    checkText(value, path);
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value))
      throw invalid(path, 'must be a number that a double can hold; send larger ones as text');
  } else if (typeof value === 'object' && value !== null) {
    if (depth > maxJsonDepth)
      throw invalid(topOf(path), `must not be nested more than ${maxJsonDepth} levels deep`);
    if (Array.isArray(value)) {
      for (let i = 0; i < value.length; i++) blame(value[i], `${path}[${i}]`, depth + 1);
    } else {
      blameMembers(value, path, depth);
    }
  }
}

function blameMembers(object: object, path: string, depth: number): void {
  for (const [key, member] of Object.entries(object)) {
    const memberPath = path === '' ? key : `${path}.${key}`;
    if (key === '__proto__')
      throw invalid(path === '' ? key : path, 'must not have a member named __proto__');
    if (!isPlainText(key))
      throw invalid(path === '' ? 'body' : path, `has a member name that ${unplain(key)}`);
    blame(member, memberPath, depth + 1);
  }
}

export function checkText(text: string, path: string): void {
  if (!isPlainText(text)) throw invalid(path, `must not be text that ${unplain(text)}`);
}

const isPlainText = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

const unplain = (text: string): string =>
  text.includes('\0')
    ? 'contains a NUL character, which the database cannot hold'
    : 'contains half of a surrogate pair, which is not a character';

/** The first step of a path: the full path of a deeply nested value is of no use in an error. */
const topOf = (path: string): string => path.split(/[.[]/, 1)[0] || 'body';
