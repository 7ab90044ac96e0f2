/** The schemas of the OpenAPI document as text and tables. */
import { anchor, code, codes, grouped, table } from './markdown.ts';

export interface Schema {
  $ref?: string;
  type?: string | readonly string[];
  description?: string;
  enum?: readonly unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  minimum?: number;
  maximum?: number;
  default?: unknown;
  items?: Schema;
  anyOf?: readonly Schema[];
  required?: readonly string[];
  properties?: Readonly<Record<string, Schema>>;
  additionalProperties?: Schema;
}

export interface Content {
  schema?: Schema;
  example?: unknown;
  examples?: Readonly<Record<string, { value: unknown }>>;
}

export interface Response {
  $ref?: string;
  description?: string;
  content?: Readonly<Record<string, Content>>;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query';
  required?: boolean;
  description?: string;
  schema: Schema;
}

export interface Operation {
  operationId: string;
  tags: readonly string[];
  summary: string;
  description?: string;
  parameters?: readonly Parameter[];
  requestBody?: { description: string; required: boolean; content: Readonly<Record<string, Content>> };
  responses: Readonly<Record<string, Response>>;
}

export interface OpenApi {
  tags: readonly { name: string; description: string }[];
  paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  components: { schemas: Readonly<Record<string, Schema>>; responses: Readonly<Record<string, Response>> };
}

export const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1);

/** `1 to 200`, `from 1`, `up to 200`, or nothing. */
function range(minimum: number | undefined, maximum: number | undefined): string | undefined {
  if (maximum === undefined) return minimum === undefined ? undefined : `from ${grouped(minimum)}`;
  return minimum === undefined ? `up to ${grouped(maximum)}` : `${grouped(minimum)} to ${grouped(maximum)}`;
}

const withRange = (type: string, bounds: string | undefined): string =>
  bounds === undefined ? type : `${type}, ${bounds}`;

const bracketed = (bounds: string | undefined): string => (bounds === undefined ? '' : `(${bounds}) `);

function stringText({ format, pattern, minLength, maxLength }: Schema): string {
  if (format === 'uuid') return 'UUID';
  if (format === 'date-time') return 'time';
  const bounds = range(minLength, maxLength);
  const text = bounds === undefined ? 'string' : `string of ${bounds} characters`;
  return pattern === undefined || pattern === '\\S' ? text : `${text}, pattern ${code(pattern)}`;
}

const byType: Readonly<Record<string, (schema: Schema) => string>> = {
  string: stringText,
  integer: ({ minimum, maximum }) => withRange('integer', range(minimum, maximum)),
  number: ({ minimum, maximum }) => withRange('number', range(minimum, maximum)),
  boolean: () => 'boolean',
  null: () => 'null',
  array: ({ items = {}, minItems, maxItems }) =>
    `list of ${bracketed(range(minItems, maxItems))}${typeText(items)}`,
  object: ({ properties, additionalProperties }) => {
    const values = additionalProperties?.type ?? additionalProperties?.anyOf;
    return properties || values === undefined
      ? 'object'
      : `object of ${typeText(additionalProperties ?? {})}`;
  },
};

/** The type of a value, in words. */
export function typeText(schema: Schema): string {
  if (schema.$ref) return `[${nameOf(schema.$ref)}](#${anchor(nameOf(schema.$ref))})`;
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeText))].join(' or ');
  if (schema.const !== undefined) return code(String(schema.const));
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (schema.enum) {
    const isOptional = schema.enum.includes(null);
    const words = schema.enum.filter((word) => word !== null).map(String);
    return `${codes(words)}${isOptional ? ' or null' : ''}`;
  }
  if (types.length === 0) return 'any JSON';
  return types.map((type) => byType[type]?.(schema) ?? type).join(' or ');
}

/** The fields of an object with those of the objects in it, `owner.agent` below `owner`. */
function fieldsOf({ properties = {}, required = [] }: Schema, prefix = ''): [string, boolean, Schema][] {
  return Object.entries(properties).flatMap(([name, schema]) => [
    [`${prefix}${name}`, required.includes(name), schema] as [string, boolean, Schema],
    ...(schema.properties ? fieldsOf(schema, `${prefix}${name}.`) : []),
  ]);
}

const described = ({ description = '', default: value }: Schema): string =>
  value === undefined ? description : `${description} Default: ${code(String(value))}.`;

/** What may be sent: an optional field may be left out or null, which its type need not repeat. */
export const requestTable = (schema: Schema): string =>
  table(
    ['Field', 'Required', 'Type', 'Description'],
    fieldsOf(schema).map(([name, isRequired, field]) => [
      code(name),
      isRequired ? 'yes' : '',
      isRequired ? typeText(field) : typeText(field).replace(/ or null$/, ''),
      described(field),
    ]),
  );

/** What is answered. */
export const answerTable = (schema: Schema): string =>
  table(
    ['Field', 'Type', 'Description'],
    fieldsOf(schema).map(([name, isRequired, field]) => [
      code(name),
      isRequired ? typeText(field) : `${typeText(field)}; may be absent`,
      described(field),
    ]),
  );

export const parameterTable = (parameters: readonly Parameter[]): string =>
  table(
    ['Parameter', 'In', 'Required', 'Type', 'Description'],
    parameters.map(({ name, in: place, required, description = '', schema }) => [
      code(name),
      place,
      required ? 'yes' : '',
      typeText(schema),
      described({ ...schema, description }),
    ]),
  );
