/** Values at the limits of the API's description, and beyond them. */
import type { Json } from '../../support/description.ts';

export interface Field {
  /** For example `owner.agent`. */
  path: string;
  schema: Json;
  isRequired: boolean;
}

/** The fields of a body, also those within its objects. */
export function fieldsOf(schema: Json, at = ''): Field[] {
  return Object.entries<Json>(schema.properties ?? {}).flatMap(([name, property]) => {
    const field = { path: `${at}${name}`, schema: property, isRequired: schema.required?.includes(name) };
    return [field, ...fieldsOf(property, `${field.path}.`)];
  });
}

/** The body with another value for one field; undefined removes the field. */
export function withField(body: Json, path: string, value: unknown): Json {
  const [name = '', ...rest] = path.split('.');
  const inner = rest.length === 0 ? value : withField(body?.[name] ?? {}, rest.join('.'), value);
  return { ...body, [name]: inner };
}

const many = <T>(length: number, one: T): T[] => Array.from({ length }, () => one);
const typesOf = ({ type }: Json): unknown[] => [type].flat();

/** Values that the description forbids. */
export function* beyond({ schema, isRequired }: Field): Generator<unknown> {
  if (isRequired) yield undefined;
  if (schema.maxLength !== undefined) yield 'x'.repeat(schema.maxLength + 1);
  if (schema.pattern === '\\S') yield '   ';
  if (schema.enum) yield 'NO_SUCH_WORD';
  if (schema.format === 'date-time') yield 'tomorrow';
  if (schema.minimum !== undefined) yield schema.minimum - 1;
  if (schema.maximum !== undefined) yield schema.maximum + 1;
  if (typesOf(schema).includes('integer')) yield 1.5;
  if (typesOf(schema).includes('boolean')) yield 'perhaps';
  if (!typesOf(schema).includes('array')) return;
  const one = example(schema.items);
  if (schema.maxItems !== undefined) yield many(schema.maxItems + 1, one);
  if (schema.minItems !== undefined) yield many(schema.minItems - 1, one);
  for (const wrong of beyond({ path: '', schema: schema.items, isRequired: false })) yield [wrong];
}

/** Values at the limit that the description allows. */
export function* within({ schema }: Field): Generator<unknown> {
  const isFree = !schema.format && [undefined, '\\S'].includes(schema.pattern);
  if (schema.maxLength !== undefined && isFree) yield 'x'.repeat(schema.maxLength);
  if (schema.minimum !== undefined) yield schema.minimum;
  if (schema.maximum !== undefined) yield schema.maximum;
  if (schema.enum) yield schema.enum[0];
  if (schema.maxItems !== undefined && schema.items) yield many(schema.maxItems, example(schema.items));
}

const example = ({ enum: words }: Json): unknown => words?.[0] ?? 'x';
