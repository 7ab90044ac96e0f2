import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import {
  exitHelp,
  listFlags,
  type Page,
  pagingOf,
  printNextPage,
  queryOf,
  readPages,
  withServer,
} from '../support/operator-client.ts';
import { age, print, printHelp, printJson } from '../support/output.ts';
import { type Column, fittedTable } from '../support/table.ts';

interface GroupBody {
  stream: string | null;
  addon_id: string;
  job_type: string;
  requires: string[];
  heavy: string[];
  unique: boolean;
  ready: number;
  delayed: number;
  claimed: number;
  running: number;
  next_ready_at: string | null;
  workers: number | null;
  slots: number | null;
  oldest: {
    job_id: string;
    ready_since: string;
    cause: { code: string; text: string } | null;
  } | null;
}

interface QueueBody {
  groups: GroupBody[];
  truncated: boolean;
  next_cursor: string | null;
}

/** The most groups that the server returns per request. */
const pageMax = 50;

export const queueCommand: Command = {
  name: 'queue',
  flags: listFlags,
  help: () => `Usage: leasehold queue [flags]

Shows waiting and running jobs in groups of jobs that the same workers may take.
The group whose job has been ready for longest comes first. For that job it shows
the id and the cause of the wait; 'leasehold explain' shows more. For a group
without a ready job it shows a job that needs more units than the total.

  --limit <n>           The most groups; the default is 50.
  --all                 All groups, up to 10,000.
  --cursor <id>         Continue after a previous page. Its last line names the
                        cursor.
  --json                Print one line of JSON: {groups, truncated, next_cursor}.
${urlHelp}

READY counts to 1,000. WORKERS are the known workers that ask for such jobs, and
SLOTS the jobs that they would take now.
${exitHelp}
`,
  async run(args) {
    const { help, values, words } = readFlags(args, listFlags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    const paging = pagingOf(values);
    return withServer(values.url, async (server) => {
      let truncated = false;
      const read = async (limit: number, cursor: string | undefined): Promise<Page<GroupBody>> => {
        const page = await server.get<QueueBody>(`/api/scheduler/stats/queue${queryOf({ limit, cursor })}`);
        truncated ||= page.truncated;
        return { rows: page.groups, next_cursor: page.next_cursor };
      };
      const { rows, next_cursor } = await readPages(paging, read, pageMax);
      const groups = rows.sort((a, b) => readySince(a) - readySince(b));
      if (values.json) printJson({ groups, truncated, next_cursor });
      else {
        print(groups.length === 0 ? 'Nothing waits or runs.' : fittedTable(columns, groups));
        if (truncated)
          process.stderr.write(
            'DELAYED, CLAIMED and RUNNING are not complete: there are over 10,000 jobs.\n',
          );
        printNextPage(next_cursor);
      }
      return 0;
    });
  },
};

/** Groups without a job come last. */
const readySince = ({ oldest }: GroupBody): number =>
  oldest ? Date.parse(oldest.ready_since) : Number.MAX_SAFE_INTEGER;

const needsWords = ({ requires, heavy, unique }: GroupBody): string =>
  [
    ...requires.map((name) => `+${name}`),
    ...heavy.map((name) => `heavy:${name}`),
    ...(unique ? ['unique'] : []),
  ]
    .join(' ')
    .trim();

const columns: readonly Column<GroupBody>[] = [
  { heading: 'TYPE', of: ({ job_type }) => job_type, atLeast: 8 },
  { heading: 'STREAM', of: ({ stream }) => stream, atLeast: 6 },
  { heading: 'NEEDS', of: needsWords, atLeast: 5, rank: 1 },
  { heading: 'ADDON', of: ({ addon_id }) => addon_id, atLeast: 6, rank: 5 },
  { heading: 'READY', of: ({ ready }) => (ready >= 1_000 ? '1000+' : ready) },
  { heading: 'DELAYED', of: ({ delayed }) => delayed, rank: 7 },
  { heading: 'CLAIMED', of: ({ claimed }) => claimed, rank: 8 },
  { heading: 'RUNNING', of: ({ running }) => running, rank: 4 },
  { heading: 'WORKERS', of: ({ workers }) => workers ?? '?', rank: 2 },
  { heading: 'SLOTS', of: ({ slots }) => slots ?? '?', rank: 6 },
  { heading: 'OLDEST', of: ({ oldest }) => oldest && age(oldest.ready_since) },
  { heading: 'CAUSE', of: ({ oldest }) => oldest?.cause?.code },
  { heading: 'JOB', of: ({ oldest }) => oldest?.job_id, rank: 3 },
];
