/** Statements that write and are safe to run twice. */
const marked = new Set<string>();
/** Cached results of `isRepeatable`, by text. */
const known = new Map<string, boolean>();

const begins = /^\s*(--[^\n]*\n\s*)*(select|with)\b/i;
/** Keywords of statements that write, and names of functions that do. */
const writes = /\b(insert|update|delete|merge|truncate|nextval|setval|set_config|pg_\w+)\b/i;

/** Marks a statement whose second run changes nothing beyond the first. */
export function repeatable<Made extends { readonly text: string }>(statement: Made): Made {
  marked.add(statement.text);
  return statement;
}

/** Whether a statement may run again if its outcome is unknown: it only reads, or it is marked. */
export function isRepeatable(text: string): boolean {
  if (marked.has(text)) return true;
  let answer = known.get(text);
  if (answer === undefined) {
    answer = begins.test(text) && !writes.test(text);
    // Bounded, because texts that are built for their values are many.
    if (known.size < 1_000) known.set(text, answer);
  }
  return answer;
}
