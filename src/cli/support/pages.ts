/** How commands show lists: they read pages until there is enough, and print one table or one line of JSON. */
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
  /** What the rows are called in the API. */
  name: string;
  /** The route that gives a page of them. */
  path: string;
  /** Its parameters beside `limit` and `cursor`. */
  filter?: Readonly<Record<string, string | undefined>>;
  /** What people see where there are none. */
  none: string;
  table(rows: readonly Row[]): string;
}

/** Shows as many rows of a route as the flags ask for. */
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

/** Prints rows that were read, and says on the other stream where there are more. */
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
