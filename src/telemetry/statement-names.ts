/** The names and attributes of statement spans: low in cardinality, and without any value from a client. */

import { spanAttributes } from './span-attributes.ts';
import type { Attributes } from './tracing.ts';

export interface StatementName {
  /** Such as `INSERT jobs`. */
  name: string;
  attributes: Attributes;
}

const system = 'postgresql';
/** Statements that are generated for filters are many; texts beyond this bound are parsed each time. */
const knownMax = 1_000;
const known = new Map<string, StatementName>();

export const transactionName: StatementName = {
  name: 'TRANSACTION',
  attributes: { [spanAttributes.dbSystem]: system, [spanAttributes.dbOperation]: 'TRANSACTION' },
};

export function statementName(text: string): StatementName {
  const before = known.get(text);
  if (before) return before;
  const operation = operationOf(text);
  const table = tableOf(text);
  const found = {
    name: table === undefined ? operation : `${operation} ${table}`,
    attributes: {
      [spanAttributes.dbSystem]: system,
      [spanAttributes.dbOperation]: operation,
      ...(table === undefined ? {} : { [spanAttributes.dbTable]: table }),
    },
  };
  if (known.size < knownMax) known.set(text, found);
  return found;
}

/** A statement with CTEs is named after the first write in it, or else SELECT. */
function operationOf(text: string): string {
  const [first = ''] = /[a-z]+/i.exec(text) ?? [];
  if (first.toLowerCase() !== 'with') return first.toUpperCase();
  const [, writes] =
    /(?<!\bfor )(?<!\bkey )\b(insert|delete|update)\s+(?:into\s+|from\s+)?[a-z_"]+/i.exec(text) ?? [];
  return (writes ?? 'select').toUpperCase();
}

/** The first table that the statement writes, or else reads; names of CTEs do not count. */
function tableOf(text: string): string | undefined {
  const parts = new Set(
    Array.from(
      text.matchAll(/([a-z_]+)\s*(?:\([^()]*\)\s*)?as\s+(?:(?:not\s+)?materialized\s+)?\(/gi),
      ([, part]) => part,
    ),
  );
  for (const pattern of [
    /(?<!\bfor )(?<!\bkey )\b(?:insert\s+into|update|delete\s+from)\s+"?([a-z_]+)/gi,
    /\b(?:from|join)\s+"?([a-z_]+)/gi,
  ])
    for (const [, table = ''] of text.matchAll(pattern))
      if (!parts.has(table) && !noTables.has(table.toLowerCase())) return table;
  return undefined;
}

const noTables = new Set([
  'lateral',
  'unnest',
  'rows',
  'select',
  'set',
  'skip',
  'of',
  'nowait',
  'generate_series',
]);
