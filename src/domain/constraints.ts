import { invalid } from './errors.ts';
import type { JsonObject } from './job.ts';

/**
 * What jobs ask of workers, and what workers offer. A job with `gpu_required: true` goes only to a worker that says
 * `gpu_available: true`; a job with `cpu_heavy: true` passes over a worker that says `cpu_heavy: false`. What is
 * not said is not available, and not refused.
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

export const needsOf = (constraints: JsonObject, at = 'constraints'): Needs => ({
  requires: stems(constraints, '_required', true, at),
  heavy: stems(constraints, '_heavy', true, at),
});

export const offerOf = (capabilities: JsonObject): Offer => ({
  available: stems(capabilities, '_available', true, 'constraints_capabilities'),
  refused: stems(capabilities, '_heavy', false, 'constraints_capabilities'),
});

/** A flag that is neither true nor false would be a requirement silently dropped, so it is refused by name. */
function stems(flags: JsonObject, suffix: string, wanted: boolean, field: string): string[] {
  const found: string[] = [];
  for (const [key, value] of Object.entries(flags)) {
    if (!key.endsWith(suffix)) continue;
    if (typeof value !== 'boolean') throw invalid(`${field}.${key}`, 'must be true or false');
    if (value === wanted) found.push(key.slice(0, -suffix.length));
  }
  return found.sort();
}
