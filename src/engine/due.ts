/** Handles what is due. Most of the time nothing is, and one look tells so. Says how long there will be nothing. */
export async function handleDue(
  look: () => Promise<number>,
  handle: () => Promise<unknown>,
): Promise<number> {
  const dueInMs = await look();
  if (dueInMs > 0) return dueInMs;
  await handle();
  return look();
}
