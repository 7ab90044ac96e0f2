import { prepared } from './prepared-client.ts';
import type { Sql } from './sql.ts';

/** A value as the driver binds it. Arrays come as PostgreSQL's text; see `store/sql/array-params.ts`. */
export type Param = string | number | boolean | Date | null;

/** A parameter in a text: `@jobIds`. Operators such as `<@` and `@>` have no letter behind the `@`. */
const placeholder = /@([a-z]\w*)/gi;

/**
 * A statement with named parameters. Its text has `@name` where PostgreSQL expects `$1`; the numbers are
 * assigned once, when the module is loaded, in the order of the names. Parts of a statement in several files
 * therefore need to agree on names only.
 */
export class Statement<Name extends string> {
  /** The text with numbers. */
  readonly text: string;
  readonly #names: readonly Name[];

  /** Throws if the text has a name that is not in the list, or lacks one that is. */
  constructor(names: readonly Name[], text: string) {
    const numbers = new Map<string, number>(names.map((name, i) => [name, i + 1]));
    if (numbers.size < names.length)
      throw new Error(`the statement has a parameter twice: ${names.join(', ')}`);
    const used = new Set<string>();
    this.text = text.replaceAll(placeholder, (_, name: string) => {
      const number = numbers.get(name);
      if (number === undefined) throw new Error(`the statement has an unknown parameter @${name}: ${text}`);
      used.add(name);
      return `$${number}`;
    });
    const unused = names.filter((name) => !used.has(name));
    if (unused.length > 0) throw new Error(`the statement does not use ${unused.join(', ')}: ${text}`);
    this.#names = names;
  }

  query<Row>(sql: Sql, params: Readonly<Record<Name, Param>>, signal?: AbortSignal): Promise<Row[]> {
    return sql.query<Row>(this.text, this.valuesOf(params), signal);
  }

  /** The values in the order of their numbers. */
  valuesOf(params: Readonly<Record<Name, Param>>): Param[] {
    const names = this.#names;
    const values = new Array<Param>(names.length);
    for (let i = 0; i < names.length; i++) values[i] = params[names[i] as Name];
    return values;
  }
}

/** A statement that PostgreSQL plans for the values of each execution. */
export const statement = <const Name extends string>(names: readonly Name[], text: string): Statement<Name> =>
  new Statement(names, text);

/** A frequent statement, which each connection plans once for any values; see `prepared`. */
export function preparedStatement<const Name extends string>(
  names: readonly Name[],
  text: string,
): Statement<Name> {
  const made = new Statement(names, text);
  prepared(made.text);
  return made;
}
