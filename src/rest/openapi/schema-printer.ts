/**
 * Prints the schemas of requests and answers for the API's description, in a shorter form:
 * - A schema with a title is printed once, among the components, and referenced from then on.
 * - A nullable schema becomes one type with null in it.
 * - The content of `described` is printed and not validated by the schema; code validates it, with better
 *   error texts.
 */
export type OpenApiObject = Record<string, unknown>;

export class SchemaPrinter {
  /** Components by title. */
  readonly components: Record<string, OpenApiObject> = {};

  print(schema: unknown): OpenApiObject {
    const { title } = schema as OpenApiObject;
    if (typeof title !== 'string') return this.#plain(schema as OpenApiObject);
    const printed = this.#plain(schema as OpenApiObject);
    const known = this.components[title];
    if (known && JSON.stringify(known) !== JSON.stringify(printed))
      throw new Error(`two schemas are called ${title}`);
    this.components[title] = printed;
    return { $ref: `#/components/schemas/${title}` };
  }

  #plain(schema: OpenApiObject): OpenApiObject {
    const printed: OpenApiObject = {};
    for (const [keyword, value] of Object.entries(schema)) {
      if (keyword === 'properties') printed.properties = this.#each(value as OpenApiObject);
      else if (keyword === 'items') printed.items = this.print(value);
      else if (keyword === 'anyOf') Object.assign(printed, this.#choice(value as OpenApiObject[]));
      else if (keyword === 'described') continue;
      else if (keyword === 'patternProperties')
        printed.additionalProperties = this.#values(value as OpenApiObject);
      else printed[keyword] = value;
    }
    Object.assign(printed, schema.described);
    const words = printed.enum ?? [printed.const];
    if (printed.type === undefined && (words as unknown[]).every((word) => typeof word === 'string'))
      printed.type = 'string';
    return printed;
  }

  #each(properties: OpenApiObject): OpenApiObject {
    return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, this.print(schema)]));
  }

  /** The schema of an object's values under any name. No other kind of pattern is in use. */
  #values(patterns: OpenApiObject): OpenApiObject {
    const [schema, ...others] = Object.values(patterns);
    if (others.length > 0) throw new Error('an object has members of more than one pattern');
    return this.print(schema);
  }

  #choice(choices: readonly OpenApiObject[]): OpenApiObject {
    const others = choices.filter(({ type }) => type !== 'null').map((choice) => this.print(choice));
    const [only, second] = others;
    if (others.length === choices.length) return { anyOf: others };
    if (!only || second || typeof only.type !== 'string') return { anyOf: [...others, { type: 'null' }] };
    const words = only.enum as unknown[] | undefined;
    return { ...only, type: [only.type, 'null'], ...(words && { enum: [...words, null] }) };
  }
}

/** A schema without its null, which a query or a path cannot express. */
export function withoutNull({ type, enum: words, anyOf, ...printed }: OpenApiObject): OpenApiObject {
  const types = Array.isArray(type) ? type.filter((word) => word !== 'null') : [type];
  if (Array.isArray(anyOf)) throw new Error('a parameter is one thing or another');
  return {
    type: types.length === 1 ? types[0] : types,
    ...(Array.isArray(words) && { enum: words.filter((word) => word !== null) }),
    ...printed,
  };
}
