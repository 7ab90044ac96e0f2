import { randomFillSync } from 'node:crypto';

/** Random hexadecimal digits, made for many ids at once: formatting is on the path of every job. */
const digitsPerId = 16;
const pool = Buffer.alloc((digitsPerId / 2) * 1_024);
let digits = '';
let used = 0;

/** How far ids may run ahead of the clock. */
const borrowedMaxMs = 10_000;

let lastMs = 0;
let counter = 0;
/** The first thirteen digits and their dashes, which ids of one millisecond share. */
let prefix = '';

/**
 * A UUID of version 7: its first half is the time, so that new rows land at one end of every index and lists by id are
 * lists by age. Within a millisecond ids of one process rise too, through the twelve bits after the version.
 */
export function newId(nowMs = Date.now()): string {
  if (used === digits.length) {
    digits = randomFillSync(pool).toString('hex');
    used = 0;
  }
  const random = digits.slice(used, used + digitsPerId);
  used += digitsPerId;
  // A clock that is set back a little, or more than 4,096 ids in a millisecond, borrows from the time to come. One that
  // was far ahead is believed again at once: lists by time look for ids near their time.
  if (nowMs > lastMs || lastMs - nowMs > borrowedMaxMs)
    begin(nowMs, Number.parseInt(random.slice(0, 3), 16) >> 1);
  else if (++counter > 0xfff) begin(lastMs + 1, 0);
  const variant = '89ab'[Number.parseInt(random[3] as string, 16) & 3];
  return `${prefix}${counter.toString(16).padStart(3, '0')}-${variant}${random.slice(1, 4)}-${random.slice(4)}`;
}

function begin(ms: number, start: number): void {
  lastMs = ms;
  counter = start;
  const time = ms.toString(16).padStart(12, '0');
  prefix = `${time.slice(0, 8)}-${time.slice(8)}-7`;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export const isUuid = (text: string): boolean => uuid.test(text);
