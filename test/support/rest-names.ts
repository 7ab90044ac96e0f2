/**
 * The names in an OpenAPI document: routes with their operations, query parameters, fields of requests and of answers.
 * What the document names (`#/components/schemas`) is listed once, under its name.
 */

interface Schema {
  $ref?: string;
  type?: string | readonly string[];
  enum?: readonly unknown[];
  const?: unknown;
  required?: readonly string[];
  properties?: Readonly<Record<string, Schema>>;
  items?: Schema;
  anyOf?: readonly Schema[];
  additionalProperties?: Schema;
}

interface Body {
  content?: Readonly<Record<string, { schema: Schema }>>;
}

interface Operation {
  operationId: string;
  parameters?: readonly { name: string; in: string; required?: boolean; schema: Schema }[];
  requestBody?: Body;
  responses: Readonly<Record<string, Body & { $ref?: string }>>;
}

export interface OpenApi {
  paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  components: { schemas: Readonly<Record<string, Schema>> };
}

export const restNames = ({ paths }: OpenApi): string[] =>
  Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, operation]) =>
      operationNames(`${method.toUpperCase()} ${path}`, operation),
    ),
  );

export const restSchemaNames = ({ components }: OpenApi): string[] =>
  Object.entries(components.schemas).flatMap(([name, schema]) => [name, ...insideOf(name, schema, false)]);

function operationNames(route: string, operation: Operation): string[] {
  const { operationId, parameters = [], requestBody, responses } = operation;
  const asked = requestBody?.content?.['application/json']?.schema;
  return [
    `${route} = ${operationId}`,
    ...parameters.flatMap(({ name, in: place, required = false, schema }) =>
      place === 'query' ? fieldNames(`${route} ?${name}`, schema, required) : [],
    ),
    ...(asked ? insideOf(`${route} body`, asked, true) : []),
    ...new Set(Object.entries(responses).flatMap(([status, answer]) => answerNames(route, status, answer))),
  ];
}

/** Errors that all routes have alike are named elsewhere; those with fields of their contract are listed here. */
function answerNames(
  route: string,
  status: string,
  { $ref, content }: Operation['responses'][string],
): string[] {
  if ($ref !== undefined) return [];
  const schema = content?.['application/json']?.schema;
  if (status.startsWith('2')) {
    const answer = `${route} ${status}`;
    return schema
      ? fieldNames(answer, schema)
      : [`${answer} = ${Object.keys(content ?? {})[0] ?? 'nothing'}`];
  }
  return Object.keys(schema?.properties ?? {}).map((name) => `${route} refused.${name}`);
}

/** A field: what it is, where that is one thing, and what is inside of it. */
function fieldNames(name: string, schema: Schema, required = false, isAsked = false): string[] {
  const [only, ...others] = choicesOf(schema);
  const type = others.length === 0 && only ? typeOf(only) : '';
  const value = [type, required ? 'required' : ''].filter((word) => word !== '').join(', ');
  return [value === '' ? name : `${name} = ${value}`, ...insideOf(name, schema, isAsked)];
}

function insideOf(name: string, schema: Schema, isAsked: boolean): string[] {
  const choices = choicesOf(schema);
  if (choices.length > 1)
    return [...new Set(choices.flatMap((choice) => choiceNames(name, choice, isAsked)))];
  const { properties = {}, required = [], items, additionalProperties, ...only } = choices[0] ?? {};
  return [
    ...Object.entries(properties).flatMap(([field, of]) =>
      fieldNames(`${name}.${field}`, of, isAsked && required.includes(field), isAsked),
    ),
    ...(items ? insideOf(`${name}[]`, items, isAsked) : []),
    ...(additionalProperties ? insideOf(`${name}.*`, additionalProperties, isAsked) : []),
    ...wordsOf(only).map((word) => `${name}: ${word}`),
  ];
}

const choiceNames = (name: string, choice: Schema, isAsked: boolean): string[] => [
  `${name}: ${typeOf(choice)}`,
  ...insideOf(name, choice, isAsked),
];

/** The alternatives of a schema. Null is none of them. */
function choicesOf(schema: Schema): readonly Schema[] {
  const { anyOf, ...rest } = schema;
  if (!anyOf) return [schema];
  const choices = anyOf.filter(({ type }) => type !== 'null');
  // What the alternatives have in common stands beside them.
  return rest.properties ? [rest] : choices;
}

function typeOf({ $ref, type, items }: Schema): string {
  if ($ref !== undefined) return $ref.replace(/^.*\//, '');
  const types = [type ?? []].flat().filter((each) => each !== 'null');
  return types.map((each) => (each === 'array' && items ? `${typeOf(items)}[]` : each)).join(' or ');
}

const wordsOf = (schema: Schema): string[] =>
  [...(schema.enum ?? []), schema.const].filter((word) => typeof word === 'string');
