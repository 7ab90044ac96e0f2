import { readFlags, UsageError } from './args.ts';
import type { Command } from './commands.ts';
import { type Column, fittedTable } from './fitted-table.ts';
import {
  listFlags,
  type Page,
  pageHelp,
  pagingOf,
  queryOf,
  readPages,
  tellMore,
  withServer,
} from './operator.ts';
import { print, printJson } from './output.ts';
import { urlHelp } from './server-client.ts';

interface StreamBody {
  stream: string;
  queued: number;
  delayed: number;
  running: number;
  dead_lettered: number;
}

export const streamsCommand: Command = {
  name: 'streams',
  flags: listFlags,
  help: () => `Usage: leasehold streams [<stream>] [flags]

Lists the streams by name, or the one that is named, and how much is in each: jobs that may be taken now, jobs that wait
for a backoff, a time or more capacity, jobs that are leased, and dead letters.

${pageHelp}
  --json                Answer with one line of JSON: {streams, next_cursor}.
${urlHelp}

Ends with 1 where the server refuses or does not answer.
`,
  async run(args) {
    const { help, values, words } = readFlags(args, listFlags);
    if (help) {
      process.stdout.write(this.help());
      return 0;
    }
    if (words.length > 1) throw new UsageError('takes one stream');
    const paging = pagingOf(values);
    return withServer(values.url, async (server) => {
      const { rows, next_cursor } = await readPages(
        paging,
        async (limit, cursor): Promise<Page<StreamBody>> => {
          const page = await server.get<{ streams: StreamBody[]; next_cursor: string | null }>(
            `/api/scheduler/streams${queryOf({ stream: words[0], limit, cursor })}`,
          );
          return { rows: page.streams, next_cursor: page.next_cursor };
        },
      );
      if (values.json) printJson({ streams: rows, next_cursor });
      else {
        print(rows.length === 0 ? 'No streams.' : fittedTable(columns, rows));
        tellMore(next_cursor);
      }
      return 0;
    });
  },
};

const columns: readonly Column<StreamBody>[] = [
  { heading: 'STREAM', of: ({ stream }) => stream, atLeast: 12 },
  { heading: 'QUEUED', of: ({ queued }) => queued },
  { heading: 'DELAYED', of: ({ delayed }) => delayed },
  { heading: 'RUNNING', of: ({ running }) => running },
  { heading: 'DEAD LETTERS', of: ({ dead_lettered }) => dead_lettered },
];
