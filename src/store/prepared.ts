import pg from 'pg';

/** The statements that are worth preparing, and their names. */
const names = new Map<string, string>();

/**
 * Marks a statement as one that is run all the time. Each connection parses and plans it once, and afterwards only
 * binds and runs it; planning a statement of five parts costs more than running it for a few rows.
 */
export function hot(text: string): string {
  names.set(text, `leasehold_${names.size}`);
  return text;
}

let clients = 0;

/** A connection that prepares hot statements. */
export class PreparingClient extends pg.Client {
  /** Part of the names, because all connections to the embedded database share one session. */
  readonly #number = clients++;

  // The driver has many forms of `query`; only the one that Kysely uses is changed.
  override query(...args: unknown[]): never {
    const [text, values] = args;
    const name = typeof text === 'string' && Array.isArray(values) ? names.get(text) : undefined;
    const original = super.query as (...args: unknown[]) => never;
    if (name === undefined) return original.apply(this, args);
    return original.call(this, { name: `${name}_${this.#number}`, text, values });
  }
}
