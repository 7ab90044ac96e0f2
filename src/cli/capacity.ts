import { readFlags, UsageError } from './args.ts';
import { commonFlags, wholeFlag, withServer } from './operator.ts';
import { listing, print, printJson } from './output.ts';
import { urlHelp } from './server-client.ts';
import { commandOf, type Verb } from './verbs.ts';

const help = () => `Usage: leasehold capacity [flags]
       leasehold capacity set [--total <n>] [--busy-rating <n>] [flags]

Shows the units of capacity and what is taken of them. set changes them for all servers at once: nothing is taken from
work that runs, and nothing is granted until there is room again.

  --total <n>           All units there are, from 0.
  --busy-rating <n>     How busy the machines are with other things, from 0 to 10: a tenth of all units each.
  --json                Answer with one line of JSON, in the words of the API.
${urlHelp}

Ends with 1 where the server refuses or does not answer.
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

const showVerb: Verb = {
  name: 'show',
  async run(args) {
    const { values } = readFlags(args, commonFlags);
    return withServer(values.url, async (server) => show(await server.get(path), values.json === true));
  },
};

const setVerb: Verb = {
  name: 'set',
  async run(args) {
    const { values, words } = readFlags(args, { total: 'string', 'busy-rating': 'string', ...commonFlags });
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    const total = wholeFlag('total', values.total, 0);
    const busy_rating = wholeFlag('busy-rating', values['busy-rating'], 0);
    if (total === undefined && busy_rating === undefined)
      throw new UsageError('names no --total and no --busy-rating');
    const change = {
      ...(total === undefined ? {} : { total }),
      ...(busy_rating === undefined ? {} : { busy_rating }),
    };
    return withServer(values.url, async (server) =>
      show(await server.put(path, change), values.json === true),
    );
  },
};

export const capacityCommand = commandOf('capacity', help, [setVerb], showVerb);
