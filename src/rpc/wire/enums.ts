import type { DescEnum, DescField, DescMessage, JsonValue } from '@bufbuild/protobuf';
import { type DomainError, invalid, printable } from '../../domain/errors.ts';

/**
 * Refuses unknown enum names, anywhere in a message's JSON. A reader that ignores unknown fields, as this one
 * must, ignores unknown enum names as well. A job meant to be urgent would then be submitted without a
 * priority.
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
  // The well-known types have their own JSON forms, without enums.
  else if (field.message && !field.message.typeName.startsWith('google.protobuf.')) {
    checkEnums(field.message, value, at);
  }
}

/** The error for a number that is no value of an enum, or for the zero value where a value is required. */
export const noSuchValue = (type: DescEnum, number: number, field: string): DomainError =>
  invalid(field, `${oneOf(type)}, not ${number}`);

/** The zero value means that the field is unset, so it is not offered. */
const oneOf = ({ values }: DescEnum): string =>
  `must be one of ${values.flatMap(({ name, number }) => (number === 0 ? [] : name)).join(', ')}`;

function checkEnumName(type: DescEnum, value: JsonValue, at: string): void {
  const { values, typeName } = type;
  if (typeName === 'google.protobuf.NullValue') return;
  if (values.some(({ name, number }) => value === name || value === number)) return;
  throw invalid(at, `${oneOf(type)}, not ${printable(value)}`);
}
