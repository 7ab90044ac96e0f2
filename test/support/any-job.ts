/** Any job there may be, for tests on what is written by hand. */
import fc from 'fast-check';
import { type Job, type JsonObject, priorities } from '../../src/domain/jobs/job.ts';
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

export const anyJob: fc.Arbitrary<Job> = fc.record({
  jobId: fc.uuid(),
  addonId: text,
  jobType: text,
  priority: fc.constantFrom(...priorities),
  costUnits: whole,
  constraints: json,
  payload: json,
  state: fc.constantFrom(...states),
  createdAtMs: ms,
  updatedAtMs: ms,
  claimedBy: optional(text),
  claimExpiresAtMs: optional(ms),
  leaseId: optional(fc.uuid()),
  attempts: whole,
  nextRetryAtMs: optional(ms),
  clientRequestId: optional(text),
  stream: optional(text),
  unique: fc.boolean(),
  tags: fc.array(text, { maxLength: 3 }),
  maxRuntimeS: optional(whole),
  maxAttempts: whole,
  retryBackoffS: whole,
  runAtMs: optional(ms),
  cancelRequested: fc.boolean(),
  progress: optional(fc.double({ min: 0, max: 1, noNaN: true })),
  note: optional(text),
  deadLettered: fc.boolean(),
});
