import { randomFillSync } from 'node:crypto';

/** Random hexadecimal digits, made for many ids at once, because formatting is on the path of every job. */
const digitsPerId = 16;
const pool = Buffer.alloc((digitsPerId / 2) * 1_024);
let digits = '';
let used = 0;

/** How far ids may run ahead of the clock. */
const borrowedMaxMs = 10_000;

let lastMs = 0;
let counter = 0;
/** The first thirteen digits with their dashes, which all ids of one millisecond share. */
let prefix = '';

/**
 * A UUID of version 7. Its first half is the time, so new rows go to one end of every index, and lists by id
 * are lists by age. Within a millisecond the ids of one process also rise, through the twelve bits after the
 * version.
 */
export function newId(nowMs = Date.now()): string {
  if (used === digits.length) {
    digits = randomFillSync(pool).toString('hex');
    used = 0;
  }
  const random = digits.slice(used, used + digitsPerId);
  used += digitsPerId;
  // If the clock is set back a little, or a millisecond has more than 4,096 ids, ids borrow from future
  // milliseconds. If the last id is far ahead, the clock counts again at once: lists by time expect ids near
  // their time.
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
