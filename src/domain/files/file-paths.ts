import { createHash } from 'node:crypto';
import { invalid, printable } from '../errors.ts';
import { limits } from '../limits.ts';
import type { FileName } from './file-lease.ts';

/**
 * The one spelling of a file's path, relative to its repository's root, or an `invalid_request` that names
 * the field. Letter case, symlinks and Unicode forms stay unchanged: only the caller's file system knows
 * which of them are the same.
 */
export function normalPath(path: string, field: string): string {
  const problem = problemWith(path);
  if (problem !== undefined) throw invalid(field, `${problem}, not ${printable(path)}`);
  const segments: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '' || segment === '.') continue;
    if (segment !== '..') segments.push(segment);
    else if (segments.pop() === undefined)
      throw invalid(field, `must not leave the repository, as ${printable(path)} does`);
  }
  if (segments.length === 0)
    throw invalid(field, `must be a file in the repository, not its root: ${printable(path)}`);
  return segments.join('/');
}

function problemWith(path: string): string | undefined {
  if (!/\S/.test(path)) return 'must not be blank';
  if (Buffer.byteLength(path) > limits.pathBytes) return `must not be longer than ${limits.pathBytes} bytes`;
  if (/^([/\\]|[A-Za-z]:[/\\])/.test(path)) return 'must be relative to the root of the repository';
  return undefined;
}

/** Files by their names, each once, in the order of their first mention. */
export function filesNamed(repository: string, paths: readonly string[], field = 'paths'): FileName[] {
  const files = new Map<string, FileName>();
  for (const [i, given] of paths.entries()) {
    const path = normalPath(given, `${field}[${i}]`);
    if (!files.has(path)) files.set(path, { fileId: fileIdOf(repository, path), repository, path });
  }
  return [...files.values()];
}

/** Names are too long for an index, so rows are found by half of a digest, written as a UUID. */
export function fileIdOf(repository: string, path: string): string {
  const hex = createHash('sha256').update(`${repository}\0${path}`).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
}
