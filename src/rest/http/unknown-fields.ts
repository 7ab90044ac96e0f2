import type { TSchema } from 'typebox';
import { printable } from '../../domain/errors.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { within } from '../../domain/requests/validator.ts';

/** The most warnings per body. */
const warningsMax = 10;
/** Longer names are not compared with the known ones. */
const comparedChars = 40;
/** The most unknown fields of a body that are kept and compared with the known ones. */
const keptComparedMax = 100;

/** The part of a schema that names the fields of its values. */
interface Shape {
  properties?: Record<string, Shape>;
  /** True where unknown fields are kept with the known ones. */
  additionalProperties?: boolean;
  items?: Shape;
  anyOf?: Shape[];
}

/**
 * Warns of fields in a body, and in objects within it, that the schema does not know. They are ignored, as
 * JSON clients expect. Without a warning, a mistyped field would be noticed only by its missing effect.
 * Objects without known fields are opaque.
 */
export function unknownFields(body: JsonObject, schema: TSchema): string[] {
  const warnings: string[] = [];
  let kept = 0;

  const look = (value: unknown, shapes: readonly Shape[], at: string): void => {
    if (typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      const items = shapes.find((shape) => shape.items)?.items;
      if (!items || !hasFields(items)) return;
      for (let i = 0; i < value.length && warnings.length < warningsMax; i++)
        look(value[i], choicesOf(items), `${at}[${i}]`);
      return;
    }
    const shape = shapes.find(({ properties }) => properties);
    if (!shape?.properties) return;
    for (const [name, field] of Object.entries(value)) {
      if (warnings.length === warningsMax) return;
      if (Object.hasOwn(shape.properties, name))
        look(field, choicesOf(shape.properties[name] as Shape), within(at, name));
      else warn(name, shape.properties, shape.additionalProperties === true, at);
    }
  };

  const warn = (name: string, known: Record<string, Shape>, isKept: boolean, at: string): void => {
    if (isKept && ++kept > keptComparedMax) return;
    const near = nearest(name, Object.keys(known));
    // A kept field may be the caller's own; only a likely mistake is worth a warning.
    if (isKept && near === undefined) return;
    const effect = isKept ? 'has no effect' : 'was ignored';
    const hint = near === undefined ? '' : `; it is close to ${printable(within(at, near))}`;
    warnings.push(`${printable(within(at, name))} is not a field of this request and ${effect}${hint}`);
  };

  look(body, [schema as Shape], '');
  return warnings;
}

/** The possible shapes of a value: each member of a union, or the schema itself. */
const choicesOf = (shape: Shape): readonly Shape[] => shape.anyOf ?? [shape];

/** Whether values of a shape may have fields that are known by name. */
const hasFields = (shape: Shape): boolean =>
  choicesOf(shape).some(({ properties, items }) => properties !== undefined || (items && hasFields(items)));

/**
 * The known name that a mistyped one most likely meant: ignoring case and separators, at most two edits away.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  if (name.length > comparedChars) return undefined;
  const plain = plainOf(name);
  let best: { name: string; edits: number } | undefined;
  for (const candidate of known) {
    const edits = editsBetween(plain, plainOf(candidate));
    // Two edits would change too much of a short name.
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
