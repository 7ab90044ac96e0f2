/**
 * Bounds the memory of decompression. A few kilobytes of gzip can become the largest message, so concurrent
 * decompressions could hold a thousand times the bytes that clients have sent.
 *
 * Guarantees: this process decompresses at most `atOnce` messages at the same time, in the order of their
 * arrival. A message that fails passes its turn to the next one.
 */
const atOnce = 2;

let running = 0;
const waiting: (() => void)[] = [];

export async function decompressInTurn<T>(work: () => T | Promise<T>): Promise<T> {
  // A finished call passes its turn on directly, so that no new call takes it in between.
  if (running >= atOnce) await new Promise<void>((resolve) => waiting.push(resolve));
  else running += 1;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running -= 1;
  }
}
