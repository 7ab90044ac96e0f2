import { setTimeout as delay } from 'node:timers/promises';

/** What the work came to, if that is within the limit; otherwise `what` was not done, and nobody waits any longer. */
export async function inTime<T>(limitMs: number, work: Promise<T>, what: string): Promise<T> {
  const over = new AbortController();
  const late = delay(limitMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`${what} within ${limitMs} ms`);
  });
  late.catch(() => {});
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}
