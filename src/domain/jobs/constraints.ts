import { invalid } from '../errors.ts';
import type { JsonObject } from './job.ts';

/**
 * What jobs require of workers, and what workers offer.
 * - A job with `gpu_required: true` goes only to a worker with `gpu_available: true`.
 * - A job with `cpu_heavy: true` does not go to a worker with `cpu_heavy: false`.
 * - A capability that the worker does not name is not available, and not refused.
 * - Other keys are rejected when the request arrives. Jobs that were stored before that rule are not checked.
 */
export interface Needs {
  /** The `x` of every `x_required: true`, sorted. */
  requires: string[];
  /** The `x` of every `x_heavy: true`, sorted. */
  heavy: string[];
}

export interface Offer {
  /** The `x` of every `x_available: true`, sorted. */
  available: string[];
  /** The `x` of every `x_heavy: false`, sorted. */
  refused: string[];
}

/**
 * The form of each key: a name and one of these endings. The pattern is anchored, so that a long key is read
 * once.
 */
const keysWith = (...endings: string[]) => ({
  endings: endings.join(' or '),
  pattern: new RegExp(`^\\s*\\S[\\s\\S]*(${endings.join('|')})$`),
});
export const constraintKeys = keysWith('_required', '_heavy');
export const capabilityKeys = keysWith('_available', '_heavy');

/** What a submitted job needs. */
export function needsOf(constraints: JsonObject, at = 'constraints'): Needs {
  checkKeys(constraints, constraintKeys, at);
  return storedNeedsOf(constraints, at);
}

/** What a stored job needs. An earlier version may have accepted keys that are rejected now. */
export const storedNeedsOf = (constraints: JsonObject, at = 'constraints'): Needs => ({
  requires: stems(constraints, '_required', true, at),
  heavy: stems(constraints, '_heavy', true, at),
});

export function offerOf(capabilities: JsonObject): Offer {
  const at = 'constraints_capabilities';
  checkKeys(capabilities, capabilityKeys, at);
  return {
    available: stems(capabilities, '_available', true, at),
    refused: stems(capabilities, '_heavy', false, at),
  };
}

/** Rejects unknown keys: a misspelled requirement would otherwise be ignored without an error. */
function checkKeys(flags: JsonObject, { endings, pattern }: typeof constraintKeys, field: string): void {
  for (const key of Object.keys(flags)) {
    if (pattern.test(key)) continue;
    const name = key.length > 80 ? `${key.slice(0, 80).toWellFormed()}…` : key;
    throw invalid(`${field}.${name}`, `is not known: a key must end in ${endings}, after a name`);
  }
}

/**
 * Rejects a flag that is neither true nor false, and names it: the requirement would otherwise be ignored.
 */
function stems(flags: JsonObject, suffix: string, wanted: boolean, field: string): string[] {
  const found: string[] = [];
  for (const [key, value] of Object.entries(flags)) {
    if (!key.endsWith(suffix)) continue;
    if (typeof value !== 'boolean') throw invalid(`${field}.${key}`, 'must be true or false');
    if (value === wanted) found.push(key.slice(0, -suffix.length));
  }
  return found.sort();
}
