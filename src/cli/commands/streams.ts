import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { exitHelp, listFlags, pageHelp } from '../support/operator-client.ts';
import { printHelp } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import { type Column, fittedTable } from '../support/table.ts';

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

Lists all streams by name, or one stream, with the number of their jobs: those
that may be taken now, those that wait for a backoff, a time or more capacity,
those that are leased, and dead letters.

${pageHelp}
  --json                Print one line of JSON: {streams, next_cursor}.
${urlHelp}

${exitHelp}
`,
  async run(args) {
    const { help, values, words } = readFlags(args, listFlags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    if (words.length > 1) throw new UsageError('takes one stream');
    return showList<StreamBody>(values, {
      name: 'streams',
      path: '/api/scheduler/streams',
      filter: { stream: words[0] },
      none: 'No streams.',
      table: (rows) => fittedTable(columns, rows),
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
