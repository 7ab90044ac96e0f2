import { printable } from '../domain/errors.ts';
import type { JsonObject } from '../domain/job.ts';
import type { About } from './about.ts';

/** So many warnings at the most. */
const warningsMax = 10;
/** Longer names are not compared with the known ones. */
const comparedChars = 40;

/**
 * Warnings of fields in a body that its route does not know. They are ignored, as JSON clients expect; a mistyped field would
 * otherwise be noticed only by its missing effect.
 */
export function unknownFields(body: JsonObject, about: About): string[] {
  const known = about.body?.schema.properties;
  if (!known) return [];
  const warnings: string[] = [];
  for (const name of Object.keys(body)) {
    if (Object.hasOwn(known, name)) continue;
    if (warnings.length === warningsMax) break;
    const near = nearest(name, Object.keys(known));
    const hint = near === undefined ? '' : `; it is close to ${printable(near)}`;
    warnings.push(`${printable(name)} is not a field of this request and was ignored${hint}`);
  }
  return warnings;
}

/** The known name that a mistyped one was most likely meant to be: without case and separators, at most two edits away. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (name.length > comparedChars) return undefined;
  const plain = plainOf(name);
  let best: { name: string; edits: number } | undefined;
  for (const candidate of known) {
    const edits = editsBetween(plain, plainOf(candidate));
    // Of a short name, two edits leave too little.
    const editsMax = Math.min(2, Math.floor(candidate.length / 3));
    if (edits <= editsMax && edits < (best?.edits ?? Number.POSITIVE_INFINITY))
      best = { name: candidate, edits };
  }
  return best?.name;
}

const plainOf = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, '');

/** The Levenshtein distance. */
function editsBetween(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = (row[j - 1] as number) + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row.at(-1) as number;
}
