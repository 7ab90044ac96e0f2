import { setTimeout as delay } from 'node:timers/promises';

/** The result of `work`, or `late` if it has not settled within `ms`. The work itself goes on. */
export async function withTimeout<T>(work: Promise<T>, ms: number, late: T): Promise<T> {
  const timer = new AbortController();
  const tooLong = delay(ms, late, { signal: timer.signal }).catch(() => late);
  try {
    return await Promise.race([work, tooLong]);
  } finally {
    timer.abort();
  }
}
