import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { DomainError, invalid, printable } from '../errors.ts';
import { checkJson } from './json-check.ts';

interface Problem {
  keyword: string;
  instancePath: string;
  params: object;
  message: string;
}

/**
 * Compiles the parser of one schema. The parser returns the value with its type, or throws an
 * `invalid_request` that names the first field at fault. It rejects text that PostgreSQL cannot store in
 * every field, known or unknown.
 */
export function parser<T extends TSchema>(schema: T): (value: unknown, at?: string) => Static<T> {
  const compiled = Compile(schema);
  return (value, at = '') => {
    if (!compiled.Check(value)) throw explain(compiled.Errors(value) as Problem[], value, at);
    checkJson(value, at);
    return value as Static<T>;
  };
}

function explain(problems: Problem[], value: unknown, at: string): DomainError {
  const missing = problems.find((problem) => problem.keyword === 'required');
  // An optional field is a union with null. That the value is not null either is of no use in an error.
  const plain = problems.filter((problem) => problem.keyword !== 'anyOf' && !asksForNull(problem));
  const relevant = plain.length > 0 ? plain : problems;
  const first = missing ?? nearest(relevant);
  if (!first)
    return new DomainError('invalid_request', 'the request is not what was expected', { field: 'body' });
  if (first === missing) {
    const [field = 'body'] = (missing.params as { requiredProperties: string[] }).requiredProperties;
    return invalid(join(at, `${missing.instancePath}/${field}`), 'is required');
  }
  const found = valueAt(value, first.instancePath);
  if (first.keyword === 'minLength' && found === '')
    return invalid(join(at, first.instancePath), 'must not be empty');
  return invalid(
    join(at, first.instancePath),
    `${wording(first, relevant)}, not ${sizeOf(first, found) ?? printable(found)}`,
  );
}

const asksForNull = ({ keyword, params }: Problem): boolean =>
  keyword === 'type' && (params as { type: unknown }).type === 'null';

/** In a union, a problem inside a member is more specific than a mismatch with the other member. */
function nearest(problems: readonly Problem[]): Problem | undefined {
  const [first] = problems;
  return (
    first && (problems.find(({ instancePath }) => instancePath.startsWith(`${first.instancePath}/`)) ?? first)
  );
}

function wording({ keyword, params, message, instancePath }: Problem, relevant: readonly Problem[]): string {
  if (keyword === 'enum') {
    return `must be one of ${(params as { allowedValues: unknown[] }).allowedValues.join(', ')}`;
  }
  if (keyword === 'type') {
    const alike = relevant.filter(
      (problem) => problem.keyword === 'type' && problem.instancePath === instancePath,
    );
    return `must be ${alike.map(typeWord).join(' or ')}`;
  }
  if (keyword === 'pattern') return 'must not be blank';
  const bound = bounds[keyword];
  if (bound !== undefined) {
    const { limit } = params as { limit: number };
    const unit = keyword.endsWith('Length') ? 'character' : 'item';
    return `must have ${bound} ${limit} ${unit}${limit === 1 ? '' : 's'}`;
  }
  if (keyword === 'format') return 'must be a time such as 2025-12-28T20:15:00Z';
  return message;
}

const bounds: Record<string, string> = {
  maxLength: 'at most',
  minLength: 'at least',
  maxItems: 'at most',
  minItems: 'at least',
  maxProperties: 'at most',
};

/** For too many or too few items the error states their number instead of their type. */
function sizeOf({ keyword }: Problem, found: unknown): number | undefined {
  if (!Object.hasOwn(bounds, keyword) || typeof found !== 'object' || found === null) return undefined;
  return Object.keys(found).length;
}

const typeWord = ({ params }: Problem): string =>
  typeWords[String((params as { type: unknown }).type)] ?? 'something else';

const typeWords: Record<string, string> = {
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  object: 'a JSON object',
  array: 'a list',
};

/** `/jobs/3/cost_units` below `at` becomes `at.jobs[3].cost_units`. */
function join(at: string, pointer: string): string {
  let path = at;
  for (const part of pointer.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (/^\d+$/.test(key)) path += `[${key}]`;
    else path += path === '' ? key : `.${key}`;
  }
  return path === '' ? 'body' : path;
}

function valueAt(value: unknown, pointer: string): unknown {
  let found = value;
  for (const part of pointer.split('/').slice(1)) {
    if (typeof found !== 'object' || found === null) return undefined;
    found = (found as Record<string, unknown>)[part.replaceAll('~1', '/').replaceAll('~0', '~')];
  }
  return found;
}

/** The path of a field of the object at `at`. */
export const within = (at: string, field: string): string => (at === '' ? field : `${at}.${field}`);

/** The years that every API, driver and database writes in the same way. */
const earliestMs = Date.parse('0001-01-01T00:00:00Z');
const latestMs = Date.parse('9999-12-31T23:59:59.999Z');

/**
 * Milliseconds since 1970 of an ISO 8601 time that the schema has accepted, or an error that names the field.
 */
export function instantMs(text: string, field: string): number {
  const ms = Date.parse(text);
  if (ms >= earliestMs && ms <= latestMs) return ms;
  throw invalid(
    field,
    `must be a time in the years 1 to 9999, such as 2025-12-28T20:15:00Z, not ${printable(text)}`,
  );
}
