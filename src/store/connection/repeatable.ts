/** Statements that write, and may be run twice. */
const marked = new Set<string>();
/** What is known of texts that were asked for. */
const known = new Map<string, boolean>();

const begins = /^\s*(--[^\n]*\n\s*)*(select|with)\b/i;
/** Words of statements that change something, and of functions that do. */
const writes = /\b(insert|update|delete|merge|truncate|nextval|setval|set_config|pg_\w+)\b/i;

/** Marks a statement whose second run changes nothing that the first has not. */
export function repeatable(text: string): string {
  marked.add(text);
  return text;
}

/** Whether a statement may be run again when it is not known whether it has run: it only reads, or is marked. */
export function isRepeatable(text: string): boolean {
  if (marked.has(text)) return true;
  let answer = known.get(text);
  if (answer === undefined) {
    answer = begins.test(text) && !writes.test(text);
    // Texts that are put together for their values are many.
    if (known.size < 1_000) known.set(text, answer);
  }
  return answer;
}
