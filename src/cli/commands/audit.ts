import { urlHelp } from '../../client/http-client.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { listFlags, pageHelp } from '../support/operator-client.ts';
import { when } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable } from '../support/table.ts';

const help = () => `Usage: leasehold audit [--since <time>] [--principal <id>] [--action <name>] [flags]

Lists privileged acts and refused attempts; the newest first.

  --since <time>      Only since then: a time in ISO 8601, or 30m, 12h, 7d ago.
  --principal <id>    Only acts of this principal: the id of a key.
  --action <name>     Only this act: keys.create, capacity.set, access.denied, ...
${pageHelp}
  --json              Print one line of JSON, with the names of the API.
${urlHelp}

Exits with 1 if the server refuses the request or does not answer.
`;

interface EventBody {
  ts: string;
  principal: { kind: string; id: string; name: string };
  requested_by: string | null;
  peer: string;
  action: string;
  target: string | null;
  outcome: string;
  detail: string | null;
}

const columns: readonly Column<EventBody>[] = [
  { heading: 'TIME', of: ({ ts }) => when(ts) },
  { heading: 'PRINCIPAL', of: ({ principal }) => principal.name || principal.id, atLeast: 10 },
  { heading: 'ACTION', of: ({ action }) => action },
  { heading: 'OUTCOME', of: ({ outcome }) => outcome },
  { heading: 'TARGET', of: ({ target }) => target, atLeast: 10 },
  { heading: 'FROM', of: ({ peer }) => peer, rank: 2 },
  { heading: 'DETAIL', of: ({ detail }) => detail, atLeast: 10, rank: 1 },
];

const flags = { since: 'string', principal: 'string', action: 'string', ...listFlags } as const;

const listVerb: Subcommand = {
  name: 'list',
  flags,
  async run(args) {
    const { values, words } = readFlags(args, flags);
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    return showList<EventBody>(values, {
      name: 'events',
      path: '/api/access/audit',
      filter: {
        since: values.since === undefined ? undefined : timeOf(values.since),
        principal_id: values.principal,
        action: values.action,
      },
      none: 'No events.',
      table: (rows) => fittedTable(columns, rows),
    });
  },
};

const unitMs: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

function timeOf(text: string): string {
  const [, count, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const ms = unit === undefined ? Date.parse(text) : Date.now() - Number(count) * (unitMs[unit] ?? 0);
  if (Number.isNaN(ms)) throw new UsageError(`--since is no time: ${JSON.stringify(text)}`);
  return new Date(ms).toISOString();
}

export const auditCommand = commandOf('audit', help, [listVerb], listVerb);
