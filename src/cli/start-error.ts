/** Why a database could not be opened or a server not started, in one line: the error and the causes behind it. */
export function startError(error: unknown): string {
  const words: string[] = [];
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const text = at.message || (at as NodeJS.ErrnoException).code || at.name;
    if (!words.some((word) => word.includes(text))) words.push(text);
  }
  return words.join(': ') || String(error);
}
