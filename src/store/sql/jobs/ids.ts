import { randomFillSync } from 'node:crypto';

/**
 * The ids of jobs: UUIDs of version 7 that rise with `created_at`, then with the number of the batch, then
 * with the position in the batch. A list in the order of ids is therefore a list in the order of submission.
 *
 *     0199c0de-f00d-7abc-8bbb-bbbbbpppprrr
 *     milliseconds   µs  batch     position and random bits
 *
 * The statement that writes a batch makes the first part of the ids. The time is the `created_at` of the
 * batch, and the batch number comes from the sequence of `seq`. Both come from the database. The server adds
 * the second part. Consequences:
 *
 * - A batch follows all batches that were answered before it began, also within one microsecond. The clock of
 *   the embedded engine counts milliseconds, so batches of the same time are common there.
 * - Servers on one PostgreSQL share its clock and its sequence; their own clocks do not matter. Of two
 *   concurrent batches, one is listed as a whole after the other: by `created_at`, and within a microsecond
 *   by the batch numbers. Claims may take the jobs of two such batches alternately.
 * - If the database's clock is set back, later jobs are listed before earlier ones, as their `created_at`
 *   says.
 * - An id has 32 bits of the batch number. When these wrap around, batches of that one microsecond may change
 *   places.
 */

/**
 * The first 29 characters of an id, from a `timestamptz` column named `now`. Each call takes a batch number.
 */
export const idPrefix = `(select concat(substr(ms, 1, 8), '-', substr(ms, 9), '-7', us, '-', substr(batch, 1, 4), '-', substr(batch, 5))
  from (
    select lpad(to_hex(epoch_us / 1000), 12, '0') as ms, lpad(to_hex(epoch_us % 1000), 3, '0') as us,
      to_hex(${2n ** 35n} + (nextval('job_events_event_id_seq') & ${2n ** 32n - 1n})) as batch
    from (select (date_part('epoch', now) * 1000000)::bigint as epoch_us) as clock_us
  ) as digits)`;

const placeDigits = 4;
const placesMax = 16 ** placeDigits;
const randomDigits = 3;
/** Random digits for many ids at once: filling a large buffer costs hardly more than filling a small one. */
const pool = Buffer.alloc(6 * 1_024);
let digits = '';
let used = 0;

/** Distinguishes ids of different databases. */
function nextRandomDigits(): string {
  if (used + randomDigits > digits.length) {
    digits = randomFillSync(pool).toString('hex');
    used = 0;
  }
  used += randomDigits;
  return digits.slice(used - randomDigits, used);
}

/** The other 7 characters of each id of a batch. */
export function idSuffixes(count: number): string[] {
  if (count > placesMax) throw new Error(`a batch of ${count} jobs is too large to be numbered`);
  return Array.from(
    { length: count },
    (_, place) => place.toString(16).padStart(placeDigits, '0') + nextRandomDigits(),
  );
}

/**
 * The smallest id of a job that was created at this time or later. Times before 1970 and after the year
 * 10889, which no id can have, become the first and the last possible time.
 */
export function firstIdAt(ms: number): string {
  const hex = Math.min(Math.max(Math.ceil(ms), 0), 2 ** 48 - 1)
    .toString(16)
    .padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
