import { DomainError } from '../../domain/errors.ts';
import type { Route } from './router.ts';

/**
 * Wraps a route so that its errors name fields as the caller's contract does, where the engine uses another
 * name.
 */
export const withAliases = (words: ReadonlyMap<string, string>, route: Route): Route => ({
  ...route,
  handle: (request) =>
    route.handle(request).catch((error: unknown) => {
      throw translated(error, words);
    }),
});

function translated(error: unknown, words: ReadonlyMap<string, string>): unknown {
  if (!(error instanceof DomainError)) return error;
  const { code, detail, field = '', jobId } = error;
  const word = words.get(field);
  if (word === undefined) return error;
  // Every error text with a field begins with that field.
  return new DomainError(code, detail.replace(field, word), { field: word, jobId, cause: error });
}
