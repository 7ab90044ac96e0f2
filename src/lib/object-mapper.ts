/** Where the value of a property comes from. */
export interface Source<Context> {
  /** The property of the given object. */
  from: string;
  /** Converts its value, with what the caller passed for this object. */
  convert?: ((value: never, context: Context) => unknown) | undefined;
}

/**
 * Builds objects of one form from objects of another. The function is compiled, like an object literal:
 * adding properties one by one makes objects that are slower to create and to read. The names come from our
 * own tables.
 */
export function objectMapper<From extends object, To extends object, Context = void>(
  sources: Readonly<Record<string, Source<Context>>>,
): (from: From, ...context: Context extends void ? [] : [Context]) => To {
  const entries = Object.entries(sources);
  const converters = entries.map((_, i) => `convert${i}`);
  const members = entries.map(([name, { from, convert }], i) => {
    const value = `from[${JSON.stringify(from)}]`;
    return `${JSON.stringify(name)}: ${convert ? `${converters[i]}(${value}, context)` : value}`;
  });
  const compile = new Function(...converters, `return (from, context) => ({ ${members.join(', ')} })`);
  return compile(...entries.map(([, { convert }]) => convert));
}
