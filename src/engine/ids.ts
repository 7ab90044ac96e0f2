import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(16 * 256);
let used = pool.length;

/** Hex digits of every byte; formatting ids is on the path of every job. */
const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

let lastMs = 0;
let counter = 0;

/**
 * A UUID of version 7: its first half is the time, so that new rows land at one end of every index and lists by id are
 * lists by age. Within a millisecond ids of one process rise too, through the twelve bits after the version.
 */
export function newId(nowMs = Date.now()): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const at = used;
  used += 16;
  // A clock that is set back, or more than 4,096 ids in a millisecond, borrows from the time to come.
  if (nowMs > lastMs) {
    lastMs = nowMs;
    counter = ((pool[at] as number) & 0x07) << 8;
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = 0;
  }
  const time = lastMs.toString(16).padStart(12, '0');
  const byte = (i: number) => hex[pool[at + i] as number] as string;
  const variant = hex[((pool[at + 8] as number) & 0x3f) | 0x80] as string;
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter.toString(16).padStart(3, '0')}-${variant}${byte(9)}-${byte(10)}${byte(11)}${byte(12)}${byte(13)}${byte(14)}${byte(15)}`;
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export const isUuid = (text: string): boolean => uuid.test(text);
