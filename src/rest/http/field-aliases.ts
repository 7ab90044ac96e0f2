import { DomainError } from '../../domain/errors.ts';
import type { Route } from './router.ts';

/** The route, with errors that name a field in the caller's word where the engine knows it by another. */
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
  // The text begins with the field, as that of every error that has one.
  return new DomainError(code, detail.replace(field, word), { field: word, jobId, cause: error });
}
