/**
 * Bounds the memory of decompression. A few kilobytes of gzip can become the largest message, so the requests that are
 * decompressed at the same time could hold a thousand times of what their clients have sent.
 *
 * Guarantees: at most `atOnce` messages are decompressed at the same time in this process, in the order in which they
 * came. A message that fails gives its turn to the next one.
 */
const atOnce = 2;

let running = 0;
const waiting: (() => void)[] = [];

export async function decompressInTurn<T>(work: () => T | Promise<T>): Promise<T> {
  // The one before hands its turn over, so that no newcomer takes it in between.
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
