import type { Static, TObject, TSchema } from 'typebox';
import { DomainError, invalid } from '../../domain/errors.ts';

/** Query parameters. Malformed percent-encoding is detected, where `URLSearchParams` alone would guess. */
export class Query extends URLSearchParams {
  readonly #malformed = new Set<string>();

  constructor(text = '') {
    super(text);
    if (!text.includes('%')) return;
    for (const pair of text.split('&')) {
      const [name = '', ...value] = pair.split('=');
      if (!isEncoded(value.join('=')))
        for (const [key] of new URLSearchParams(name)) this.#malformed.add(key);
    }
  }

  /** Rejects a parameter whose value is not valid text. */
  check(name: string): void {
    if (this.#malformed.has(name)) throw invalid(name, 'is not properly percent-encoded');
  }
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Converts a query to the types of its schema and validates it.
 * - Empty parameters count as absent.
 * - A value that does not match its type is passed on unchanged, so that the schema rejects it by name.
 * - Of a repeated parameter the first value counts, unless it is a list. A list may also be separated by
 *   commas.
 */
export function fromQuery<T extends TObject>(
  schema: T,
  check: (value: unknown) => Static<T>,
  query: Query,
): Static<T> {
  const value: Record<string, unknown> = {};
  for (const [name, property] of Object.entries<TSchema>(schema.properties)) {
    query.check(name);
    const texts = query.getAll(name).filter((text) => text !== '');
    const [first] = texts;
    if (first !== undefined) value[name] = read(typeOf(property), first, texts);
  }
  try {
    return check(value);
  } catch (error) {
    throw withoutPlace(error);
  }
}

/** The type of an optional field is that of its first choice; the other choice is null. */
function typeOf(property: TSchema): unknown {
  const { type, anyOf } = property as { type?: unknown; anyOf?: { type?: unknown }[] };
  return type ?? anyOf?.[0]?.type;
}

function read(type: unknown, first: string, texts: readonly string[]): unknown {
  if (type === 'integer') return /^-?\d{1,15}$/.test(first) ? Number(first) : first;
  if (type === 'boolean') return first === 'true' ? true : first === 'false' ? false : first;
  if (type === 'array') return texts.flatMap((text) => text.split(',')).filter((text) => text !== '');
  return first;
}

/** The items of a list in a query have no visible index, so an error names the parameter alone. */
function withoutPlace(error: unknown): unknown {
  if (!(error instanceof DomainError) || !error.field?.endsWith(']')) return error;
  const field = error.field.replace(/\[\d+\]$/, '');
  return new DomainError(error.code, error.detail.replace(error.field, field), { field, cause: error });
}
