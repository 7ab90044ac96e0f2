import { randomFillSync } from 'node:crypto';

/**
 * The ids of jobs: UUIDs of version 7 whose time is the database's, to the microsecond. A list in the order of ids is therefore
 * a list in the order of `created_at`, whichever server a job came through and whatever that server's clock says.
 *
 * The statement that writes a batch makes the first half of the ids from the `created_at` of the batch: 48 bits of milliseconds
 * and the microseconds after them. The server makes the second half: the place in the batch, so that the ids of one batch rise
 * in the order of submission, and 44 random bits.
 *
 *     0199c0de-f00d-7abc-vppp-prrrrrrrrrrr
 *     milliseconds   µs  place  random
 */

/** The first 18 characters of an id, from a `timestamptz` that is named `now`. */
export const idPrefix = `(select substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || us from (
    select lpad(to_hex(epoch_us / 1000), 12, '0') as ms, lpad(to_hex(epoch_us % 1000), 3, '0') as us
    from (select (date_part('epoch', now) * 1000000)::bigint as epoch_us) as clock_us
  ) as digits)`;

/** Jobs whose places fit into the 18 bits there are. A batch is smaller. */
const placesMax = 0x40000;
const randomDigitsPerId = 11;
/** Random digits for many ids at once: filling a large buffer costs hardly more than filling a small one. */
const pool = Buffer.alloc(8 * 1_024);
let digits = '';
let used = 0;

function randomDigits(): string {
  if (used + randomDigitsPerId > digits.length) {
    digits = randomFillSync(pool).toString('hex');
    used = 0;
  }
  used += randomDigitsPerId;
  return digits.slice(used - randomDigitsPerId, used);
}

/** The other 18 characters, for each job of a batch. */
export function idSuffixes(count: number): string[] {
  if (count > placesMax) throw new Error(`a batch of ${count} jobs is too large to be numbered`);
  return Array.from({ length: count }, (_, place) => {
    const placed = (0x80000 + place).toString(16);
    return `-${placed.slice(0, 4)}-${placed.slice(4)}${randomDigits()}`;
  });
}

/**
 * The smallest id of a job that was created at this time or later. Times before 1970 and after the year 10889, which no id can
 * have, become the first and the last that there are.
 */
export function firstIdAt(ms: number): string {
  const hex = Math.min(Math.max(Math.ceil(ms), 0), 2 ** 48 - 1)
    .toString(16)
    .padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
