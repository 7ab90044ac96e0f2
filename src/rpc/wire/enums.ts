import type { DescEnum, DescField, DescMessage, JsonValue } from '@bufbuild/protobuf';
import { type DomainError, invalid, printable } from '../../domain/errors.ts';

/**
 * Refuses enum words that do not exist, anywhere in a message's JSON. A reader that ignores unknown fields, as ours
 * has to, ignores unknown words as well, and a job meant to be urgent would be submitted without a priority.
 */
export function checkEnums(message: DescMessage, json: JsonValue, path: string): void {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return;
  for (const field of message.fields) {
    const value = json[field.jsonName] ?? json[field.name];
    if (value === undefined || value === null) continue;
    const at = path === '' ? field.name : `${path}.${field.name}`;
    if (field.fieldKind === 'list' && Array.isArray(value)) {
      for (const [i, item] of value.entries()) checkValue(field, item, `${at}[${i}]`);
    } else if (field.fieldKind === 'map' && typeof value === 'object' && !Array.isArray(value)) {
      for (const [key, item] of Object.entries(value)) checkValue(field, item, `${at}.${key}`);
    } else {
      checkValue(field, value, at);
    }
  }
}

function checkValue(field: DescField, value: JsonValue, at: string): void {
  if (field.enum) checkEnumName(field.enum, value, at);
  // The well-known types have a JSON of their own, and no enums in it.
  else if (field.message && !field.message.typeName.startsWith('google.protobuf.')) {
    checkEnums(field.message, value, at);
  }
}

/** A number that is no value of an enum, or that says nothing where something has to be said. */
export const noSuchValue = (type: DescEnum, number: number, field: string): DomainError =>
  invalid(field, `${oneOf(type)}, not ${number}`);

/** The value that stands for nothing said is no word that anybody would look for. */
const oneOf = ({ values }: DescEnum): string =>
  `must be one of ${values.flatMap(({ name, number }) => (number === 0 ? [] : name)).join(', ')}`;

function checkEnumName(type: DescEnum, value: JsonValue, at: string): void {
  const { values, typeName } = type;
  if (typeName === 'google.protobuf.NullValue') return;
  if (values.some(({ name, number }) => value === name || value === number)) return;
  throw invalid(at, `${oneOf(type)}, not ${printable(value)}`);
}
