import { urlHelp } from '../../client/http-client.ts';
import { readFlags, UsageError } from '../support/args.ts';
import {
  commonFlags,
  exitHelp,
  jsonHelp,
  onlyWord,
  wholeFlag,
  withServer,
} from '../support/operator-client.ts';
import { print, printJson, when } from '../support/output.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable } from '../support/table.ts';

const help = () => `Usage: leasehold quotas [list] [flags]
       leasehold quotas set <addon-id> [flags]
       leasehold quotas unset <addon-id> [flags]

Shows and changes what a tenant may use at most. set replaces all limits of the
tenant; a limit that is left out is no limit.

  --max-units <n>          Units of its leases and claimed jobs. Jobs beyond it wait.
  --max-queued <n>         Jobs that wait. Submissions beyond it are refused.
  --max-payload-bytes <n>  Bytes of the payload of one job.
${jsonHelp}
${urlHelp}

${exitHelp}
`;

interface QuotaBody {
  addon_id: string;
  max_units: number | null;
  max_queued: number | null;
  max_payload_bytes: number | null;
  used_units: number;
  queued_jobs: number;
  updated_at: string;
  updated_by: string;
}

const path = '/api/access/quotas';

const numberIn = (value: number | null): string => (value === null ? '-' : value.toLocaleString('en'));

const columns: readonly Column<QuotaBody>[] = [
  { heading: 'ADDON', of: ({ addon_id }) => addon_id, atLeast: 10 },
  { heading: 'UNITS', of: ({ used_units }) => numberIn(used_units) },
  { heading: 'MAX', of: ({ max_units }) => numberIn(max_units) },
  { heading: 'QUEUED', of: ({ queued_jobs }) => numberIn(queued_jobs) },
  { heading: 'MAX', of: ({ max_queued }) => numberIn(max_queued) },
  { heading: 'MAX PAYLOAD', of: ({ max_payload_bytes }) => numberIn(max_payload_bytes) },
  { heading: 'SET', of: ({ updated_at }) => when(updated_at), rank: 1 },
  { heading: 'BY', of: ({ updated_by }) => updated_by, rank: 2 },
];

const listVerb: Subcommand = {
  name: 'list',
  flags: commonFlags,
  async run(args) {
    const { values, words } = readFlags(args, commonFlags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    return withServer(values.url, async (server) => {
      const { quotas } = await server.get<{ quotas: QuotaBody[] }>(path);
      if (values.json) printJson({ quotas });
      else print(quotas.length === 0 ? 'No quotas.' : fittedTable(columns, quotas));
      return 0;
    });
  },
};

const setFlags = {
  'max-units': 'string',
  'max-queued': 'string',
  'max-payload-bytes': 'string',
  ...commonFlags,
} as const;

const setVerb: Subcommand = {
  name: 'set',
  flags: setFlags,
  async run(args) {
    const { values, words } = readFlags(args, setFlags);
    const addonId = onlyWord(words, 'addon id');
    const limits = {
      max_units: wholeFlag('max-units', values['max-units'], 0),
      max_queued: wholeFlag('max-queued', values['max-queued'], 0),
      max_payload_bytes: wholeFlag('max-payload-bytes', values['max-payload-bytes'], 0),
    };
    if (Object.values(limits).every((limit) => limit === undefined))
      throw new UsageError('needs a limit: --max-units, --max-queued or --max-payload-bytes');
    return change({ addon_id: addonId, ...limits }, values);
  },
};

const unsetVerb: Subcommand = {
  name: 'unset',
  flags: commonFlags,
  async run(args) {
    const { values, words } = readFlags(args, commonFlags);
    return change({ addon_id: onlyWord(words, 'addon id') }, values);
  },
};

function change(body: object, { url, json }: { url?: string; json?: boolean }): Promise<number> {
  return withServer(url, async (server) => {
    const { quota } = await server.put<{ quota: QuotaBody | null }>(path, body);
    if (json) printJson({ quota });
    else print(quota === null ? 'No quota.' : fittedTable(columns, [quota]));
    return 0;
  });
}

export const quotasCommand = commandOf('quotas', help, [listVerb, setVerb, unsetVerb], listVerb);
