/** Field types of answers. A field without a value is null, and never omitted. */
import Type, { type TProperties, type TSchema } from 'typebox';

export const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** An object that is described once, under its name. */
export const entity = <T extends TProperties>(title: string, description: string, properties: T) =>
  Type.Object(properties, { title, description });

export const word = (description: string) => Type.String({ description });
export const uuid = (description: string) => Type.String({ format: 'uuid', description });
export const time = (description: string) => Type.String({ format: 'date-time', description });
export const flag = (description: string) => Type.Boolean({ description });
export const count = (description: string) => Type.Integer({ minimum: 0, description });
export const whole = (description: string) => Type.Integer({ description });
export const share = (description: string) => Type.Number({ minimum: 0, maximum: 1, description });
export const jsonObject = (description: string) =>
  Type.Record(Type.String(), Type.Unknown(), { description });
export const anyJson = (description: string) => Type.Unknown({ description });
export const oneOf = <Word extends string>(words: readonly Word[], description: string) =>
  Type.Enum([...words], { description });
export const list = <T extends TSchema>(items: T, description: string) => Type.Array(items, { description });
export const always = <Value extends boolean | number | string>(value: Value, description: string) =>
  Type.Literal(value, { description });

export const nextCursor = orNull(
  word('Where the next page begins, to be sent as `cursor`; null on the last one.'),
);
