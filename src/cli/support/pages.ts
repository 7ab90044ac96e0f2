/**
 * How commands show lists: they read pages until there are enough rows, and print one table or one line of
 * JSON.
 */
import { type Page, pagingOf, printNextPage, queryOf, readPages, withServer } from './operator-client.ts';
import { print, printJson } from './output.ts';

interface ListFlags {
  limit?: string;
  cursor?: string;
  all?: boolean;
  json?: boolean;
  url?: string;
}

export interface List<Row> {
  /** The name of the rows in the API. */
  name: string;
  /** The route that returns a page of them. */
  path: string;
  /** Query parameters besides `limit` and `cursor`. */
  filter?: Readonly<Record<string, string | undefined>>;
  /** The text for people where there are no rows. */
  none: string;
  table(rows: readonly Row[]): string;
}

/** Shows as many rows of a route as the flags request. */
export function showList<Row>(flags: ListFlags, list: List<Row>): Promise<number> {
  const paging = pagingOf(flags);
  return withServer(flags.url, async (server) => {
    const page = await readPages(paging, async (limit, cursor): Promise<Page<Row>> => {
      const { next_cursor, ...body } = await server.get<{ next_cursor: string | null }>(
        `${list.path}${queryOf({ ...list.filter, limit, cursor })}`,
      );
      return { rows: (body as Record<string, Row[]>)[list.name] as Row[], next_cursor };
    });
    return showRows(flags, list, page);
  });
}

/** Prints rows, and reports on standard error if there are more. */
export function showRows<Row>(
  { json }: ListFlags,
  { name, none, table }: Pick<List<Row>, 'name' | 'none' | 'table'>,
  { rows, next_cursor }: Page<Row>,
): number {
  if (json) printJson({ [name]: rows, next_cursor });
  else {
    print(rows.length === 0 ? none : table(rows));
    printNextPage(next_cursor);
  }
  return 0;
}
