import { urlHelp } from '../../client/http-client.ts';
import { readFlags, UsageError } from '../support/args.ts';
import {
  byHelp,
  commonFlags,
  exitHelp,
  jsonHelp,
  listFlags,
  pageHelp,
  userName,
  wholeFlag,
  withServer,
} from '../support/operator-client.ts';
import { print, printJson, when } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable, listing } from '../support/table.ts';

const help = () => `Usage: leasehold capacity [flags]
       leasehold capacity set [--total <n>] [--busy-rating <n>] [flags]
       leasehold capacity history [flags]

Shows the units of capacity, and how many are used. set changes them for all
servers at once. Leases keep their units, and the servers grant no lease until
enough units are free. history shows the changes, the newest first.

  --total <n>           All units, from 0.
  --busy-rating <n>     The other load of the machines, from 0 to 10. Each step
                        makes a tenth of all units unusable.
${byHelp}
${pageHelp}
${jsonHelp}
${urlHelp}

${exitHelp}
`;

interface CapacityBody {
  total: number;
  busy_rating: number;
  usable: number;
  used: number;
  available: number;
  reserved: number;
}

const path = '/api/scheduler/stats/capacity';

function show(capacity: CapacityBody, asJson: boolean): number {
  if (asJson) printJson(capacity);
  else print(listing(Object.entries(capacity)));
  return 0;
}

const showVerb: Subcommand = {
  name: 'show',
  flags: commonFlags,
  async run(args) {
    const { values } = readFlags(args, commonFlags);
    return withServer(values.url, async (server) => show(await server.get(path), values.json === true));
  },
};

const setFlags = {
  total: 'string',
  'busy-rating': 'string',
  reason: 'string',
  'requested-by': 'string',
  ...commonFlags,
} as const;

const setVerb: Subcommand = {
  name: 'set',
  flags: setFlags,
  async run(args) {
    const { values, words } = readFlags(args, setFlags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    const total = wholeFlag('total', values.total, 0);
    const busy_rating = wholeFlag('busy-rating', values['busy-rating'], 0);
    if (total === undefined && busy_rating === undefined)
      throw new UsageError('names no --total and no --busy-rating');
    const requested_by = values['requested-by'] ?? userName();
    const change = {
      ...(total === undefined ? {} : { total }),
      ...(busy_rating === undefined ? {} : { busy_rating }),
      ...(values.reason === undefined ? {} : { reason: values.reason }),
      ...(requested_by === undefined ? {} : { requested_by }),
    };
    return withServer(values.url, async (server) =>
      show(await server.put(path, change), values.json === true),
    );
  },
};

interface ChangeBody {
  change_id: number;
  ts: string;
  requested_by: string;
  reason: string | null;
  total_before: number;
  total_after: number;
  busy_rating_before: number;
  busy_rating_after: number;
}

const historyVerb: Subcommand = {
  name: 'history',
  flags: listFlags,
  async run(args) {
    const { values, words } = readFlags(args, listFlags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    return showList<ChangeBody>(values, {
      name: 'changes',
      path: `${path}/changes`,
      none: 'No changes.',
      table: (rows) => fittedTable(historyColumns, rows),
    });
  },
};

const historyColumns: readonly Column<ChangeBody>[] = [
  { heading: 'TIME', of: ({ ts }) => when(ts) },
  { heading: 'BY', of: ({ requested_by }) => requested_by, atLeast: 12 },
  { heading: 'TOTAL', of: ({ total_before, total_after }) => changed(total_before, total_after) },
  {
    heading: 'BUSY',
    of: ({ busy_rating_before, busy_rating_after }) => changed(busy_rating_before, busy_rating_after),
  },
  { heading: 'REASON', of: ({ reason }) => reason, wraps: true, atLeast: 10, rank: 1 },
];

const changed = (before: number, after: number): string =>
  before === after ? String(after) : `${before} -> ${after}`;

export const capacityCommand = commandOf('capacity', help, [setVerb, historyVerb], showVerb);
