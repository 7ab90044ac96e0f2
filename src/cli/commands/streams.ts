import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { listFlags, pageHelp } from '../support/operator-client.ts';
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
