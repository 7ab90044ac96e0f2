/** Shared parts of the operator's commands: requests, pages, and exit codes. */
import { userInfo } from 'node:os';
import { HttpClient, ServerError } from '../../client/http-client.ts';
import { inLine } from '../../lib/terminal-text.ts';
import { UsageError } from './args.ts';
import { printToStderr } from './stderr.ts';

const answerLimitMs = 30_000;

/** Flags of all these commands. */
export const commonFlags = { json: 'boolean', url: 'string' } as const;

/** Flags of lists. */
export const pageFlags = { limit: 'string', cursor: 'string', all: 'boolean' } as const;

/** Flags of lists without filters. */
export const listFlags = { ...pageFlags, ...commonFlags } as const;

/** The most rows that most routes return per request. */
const pageMax = 200;
/** The most rows of `--all`. */
export const allMax = 10_000;
const limitDefault = 50;

export const pageHelp = `  --limit <n>           The most rows; the default is ${limitDefault}.
  --all                 All rows, up to ${allMax.toLocaleString('en')}.
  --cursor <id>         Continue after a previous page. Its last line names the
                        cursor.`;

export const jsonHelp = '  --json                Print one line of JSON, with the names of the API.';

export const exitHelp = 'Exits with 1 if the server refuses the request or does not answer.';

export const byHelp = `  --reason <text>       The reason, for the history.
  --requested-by <who>  The requester, for the history; the default is the user's
                        name.`;

/**
 * Runs `work` with a client. An error of the server is printed in one line, with its code, and the exit code
 * is 1.
 */
export async function withServer(
  url: string | undefined,
  work: (server: HttpClient) => Promise<number>,
): Promise<number> {
  try {
    return await work(new HttpClient(url, { timeoutMs: answerLimitMs }));
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    printToStderr(refusal(error));
    return 1;
  }
}

export const refusal = ({ message, code }: ServerError): string =>
  inLine(code === undefined ? message : `${message} (${code})`);

export function wholeFlag(flag: string, text: string | undefined, min: number): number | undefined {
  if (text === undefined) return undefined;
  const number = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= min) return number;
  throw new UsageError(`--${flag} must be a whole number from ${min}, not ${JSON.stringify(text)}`);
}

export interface Paging {
  limit: number;
  cursor: string | undefined;
}

export function pagingOf(values: { limit?: string; cursor?: string; all?: boolean }): Paging {
  if (values.all && values.limit !== undefined) throw new UsageError('takes either --limit or --all');
  const limit = values.all ? allMax : (wholeFlag('limit', values.limit, 1) ?? limitDefault);
  return { limit: Math.min(limit, allMax), cursor: values.cursor };
}

export interface Page<Row> {
  rows: Row[];
  next_cursor: string | null;
}

/** Reads pages until there are as many rows as requested. */
export async function readPages<Row>(
  { limit, cursor }: Paging,
  read: (limit: number, cursor: string | undefined) => Promise<Page<Row>>,
  rowsMax = pageMax,
): Promise<Page<Row>> {
  const rows: Row[] = [];
  let next: string | null = cursor ?? null;
  do {
    const page: Page<Row> = await read(Math.min(rowsMax, limit - rows.length), next ?? undefined);
    rows.push(...page.rows);
    next = page.next_cursor;
  } while (next !== null && rows.length < limit);
  return { rows, next_cursor: next };
}

/** Prints the next cursor to standard error, so that it does not mix with the table. */
export function printNextPage(next: string | null): void {
  if (next !== null) process.stderr.write(`there is more: --cursor ${inLine(next)}\n`);
}

/** The parameters that have a value, as a query. */
export function queryOf(parameters: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const query = new URLSearchParams(
    given.map(([name, value]): [string, string] => [name, String(value)]),
  ).toString();
  return query === '' ? '' : `?${query}`;
}

/**
 * A process whose user id has no name may find one in the environment. Otherwise the server records the
 * address.
 */
export function userName(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return process.env.USER || undefined;
  }
}

/** The only argument, or an error. */
export function onlyWord(words: readonly string[], what: string): string {
  const [word, ...others] = words;
  if (word === undefined || others.length > 0) throw new UsageError(`takes one ${what}`);
  return word;
}
