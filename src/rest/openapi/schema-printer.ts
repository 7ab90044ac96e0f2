/**
 * Prints the schemas of requests and answers for the API's description, in a shorter form:
 * - A schema with a title is printed once, among the components, and referenced from then on.
 * - A nullable schema becomes one type with null in it.
 * - The content of `described` is printed and not validated by the schema; code validates it, with better
 *   error texts.
 */
export type Told = Record<string, unknown>;

export class SchemaPrinter {
  /** Components by title. */
  readonly components: Record<string, Told> = {};

  print(schema: unknown): Told {
    const { title } = schema as Told;
    if (typeof title !== 'string') return this.#plain(schema as Told);
    const told = this.#plain(schema as Told);
    const known = this.components[title];
    if (known && JSON.stringify(known) !== JSON.stringify(told))
      throw new Error(`two schemas are called ${title}`);
    this.components[title] = told;
    return { $ref: `#/components/schemas/${title}` };
  }

  #plain(schema: Told): Told {
    const told: Told = {};
    for (const [keyword, value] of Object.entries(schema)) {
      if (keyword === 'properties') told.properties = this.#each(value as Told);
      else if (keyword === 'items') told.items = this.print(value);
      else if (keyword === 'anyOf') Object.assign(told, this.#choice(value as Told[]));
      else if (keyword === 'described') continue;
      else if (keyword === 'patternProperties') told.additionalProperties = this.#values(value as Told);
      else told[keyword] = value;
    }
    Object.assign(told, schema.described);
    const words = told.enum ?? [told.const];
    if (told.type === undefined && (words as unknown[]).every((word) => typeof word === 'string'))
      told.type = 'string';
    return told;
  }

  #each(properties: Told): Told {
    return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, this.print(schema)]));
  }

  /** The schema of an object's values under any name. No other kind of pattern is in use. */
  #values(patterns: Told): Told {
    const [schema, ...others] = Object.values(patterns);
    if (others.length > 0) throw new Error('an object has members of more than one pattern');
    return this.print(schema);
  }

  #choice(choices: readonly Told[]): Told {
    const others = choices.filter(({ type }) => type !== 'null').map((choice) => this.print(choice));
    const [only, second] = others;
    if (others.length === choices.length) return { anyOf: others };
    if (!only || second || typeof only.type !== 'string') return { anyOf: [...others, { type: 'null' }] };
    const words = only.enum as unknown[] | undefined;
    return { ...only, type: [only.type, 'null'], ...(words && { enum: [...words, null] }) };
  }
}

/** A schema without its null, which a query or a path cannot express. */
export function withoutNull({ type, enum: words, anyOf, ...told }: Told): Told {
  const types = Array.isArray(type) ? type.filter((word) => word !== 'null') : [type];
  if (Array.isArray(anyOf)) throw new Error('a parameter is one thing or another');
  return {
    type: types.length === 1 ? types[0] : types,
    ...(Array.isArray(words) && { enum: words.filter((word) => word !== null) }),
    ...told,
  };
}
