/**
 * The schemas that check requests and word answers, as the API's description tells them: the same, in fewer words.
 * What has a title is told once, among the components, and pointed at from then on. What may be null is told as one type
 * with null in it. What stands under `described` is told and not checked by the schema: code checks it, in better words.
 */
export type Told = Record<string, unknown>;

export class SchemaPrinter {
  /** By their titles. */
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

  /** What an object has under any name, which is the only kind of pattern there is. */
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

/** A schema without the null that it allows: nobody can write one into an address. */
export function withoutNull({ type, enum: words, anyOf, ...told }: Told): Told {
  const types = Array.isArray(type) ? type.filter((word) => word !== 'null') : [type];
  if (Array.isArray(anyOf)) throw new Error('a parameter is one thing or another');
  return {
    type: types.length === 1 ? types[0] : types,
    ...(Array.isArray(words) && { enum: words.filter((word) => word !== null) }),
    ...told,
  };
}
