/**
 * The field numbers and tags of hand-written protobuf. They come from the generated descriptors and are
 * computed once, when a module is loaded.
 */
import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { wireType } from './reader.ts';

/** The number of each field of a message, by its name in the generated code. */
export type FieldNumbers<Desc extends DescMessage> = { readonly [Name in keyof Desc['field']]: number };

export const numbersOf = <Desc extends DescMessage>(schema: Desc): FieldNumbers<Desc> =>
  Object.fromEntries(schema.fields.map(({ localName, number }) => [localName, number])) as FieldNumbers<Desc>;

/** The number and wire type with which a field begins: `number * 8 + type`. */
export const tagOf = (field: DescField): number => field.number * 8 + wireTypeOf(field);

function wireTypeOf(field: DescField): number {
  if (field.fieldKind === 'enum') return wireType.varint;
  if (field.fieldKind !== 'scalar') return wireType.delimited;
  switch (field.scalar) {
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return wireType.delimited;
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return wireType.fixed64;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return wireType.fixed32;
    default:
      return wireType.varint;
  }
}
