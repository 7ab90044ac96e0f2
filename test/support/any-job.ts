/** Any job there may be, for tests on what is written by hand. */
import fc from 'fast-check';
import { type Job, type JsonObject, priorities } from '../../src/domain/jobs/job.ts';
import { type FieldKind, jobFieldList } from '../../src/domain/jobs/job-fields.ts';
import { states } from '../../src/domain/jobs/state-machine.ts';

export const text = fc.string({ unit: 'grapheme', maxLength: 300 });
export const ms = fc.integer({
  min: Date.parse('0001-01-01T00:00:00Z'),
  max: Date.parse('9999-12-31T23:59:59Z'),
});
export const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null });
export const whole = fc.nat({ max: 2_000_000_000 });
export const json = fc.dictionary(
  text.filter((key) => key !== '__proto__'),
  fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }),
  { noNullPrototype: true },
) as fc.Arbitrary<JsonObject>;

/** Any values of each kind of field. */
const anyValue: Record<FieldKind, fc.Arbitrary<unknown>> = {
  uuid: fc.uuid(),
  text,
  time: ms,
  whole,
  count: whole,
  share: fc.double({ min: 0, max: 1, noNaN: true }),
  flag: fc.boolean(),
  object: json,
  constraints: json,
  labels: fc.array(text, { maxLength: 3 }),
  priority: fc.constantFrom(...priorities),
  state: fc.constantFrom(...states),
};

export const anyJob = fc.record(
  Object.fromEntries(
    jobFieldList.map(({ property, kind, isNullable }) => [
      property,
      isNullable ? optional(anyValue[kind]) : anyValue[kind],
    ]),
  ),
) as unknown as fc.Arbitrary<Job>;
