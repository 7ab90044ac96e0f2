import { urlHelp } from '../../client/http-client.ts';
import { auditActions, auditOutcomes } from '../../domain/access/audit.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { listFlags, pageHelp } from '../support/operator-client.ts';
import { when } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable } from '../support/table.ts';

const help = () => `Usage: leasehold audit [flags]

Lists privileged acts and refused calls; the newest first.

  --since <time>      Only since then: a time in ISO 8601, or 30m, 12h, 7d ago.
  --until <time>      Only before then.
  --principal <id>    Only acts of this principal: the id of a key.
  --outcome <name>    Only this outcome: ${auditOutcomes.join(' or ')}.
  --action <name>     Only this act:
${actionsHelp()}
${pageHelp}
  --json              Print one line of JSON, with the names of the API.
${urlHelp}

Exits with 1 if the server refuses the request or does not answer.
`;

const actionsHelp = (): string =>
  Object.entries(auditActions)
    .map(([name, about]) => `      ${name.padEnd(24)}  ${about}`)
    .join('\n');

interface EventBody {
  ts: string;
  principal: { kind: string; id: string; name: string };
  requested_by: string | null;
  peer: string;
  method: string | null;
  action: string;
  target: string | null;
  outcome: string;
  detail: string | null;
  left_out: number;
}

/** The detail, with the number of refusals that the event stands for besides. */
const detailOf = ({ detail, left_out }: EventBody): string | null =>
  left_out === 0 ? detail : `${detail ?? ''} (${left_out} more)`.trim();

/** The id stands beside the name, because names of keys that were revoked may be used again. */
const whoOf = ({ kind, id, name }: EventBody['principal']): string =>
  [name, id === '' ? kind : `${kind}:${id}`].filter((part) => part !== '').join(' ');

const columns: readonly Column<EventBody>[] = [
  { heading: 'TIME', of: ({ ts }) => when(ts) },
  { heading: 'PRINCIPAL', of: ({ principal }) => whoOf(principal), atLeast: 10 },
  { heading: 'ACTION', of: ({ action }) => action },
  { heading: 'OUTCOME', of: ({ outcome }) => outcome },
  { heading: 'TARGET', of: ({ target }) => target, atLeast: 10 },
  { heading: 'FROM', of: ({ peer }) => peer, atLeast: 9, rank: 2 },
  { heading: 'CLAIMS TO BE', of: ({ requested_by }) => requested_by, atLeast: 12, rank: 4 },
  { heading: 'METHOD', of: ({ method }) => method, atLeast: 12, rank: 3 },
  { heading: 'DETAIL', of: detailOf, atLeast: 10, rank: 1 },
];

const flags = {
  since: 'string',
  until: 'string',
  principal: 'string',
  action: 'string',
  outcome: 'string',
  ...listFlags,
} as const;

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
        since: timeOf('since', values.since),
        until: timeOf('until', values.until),
        principal_id: values.principal,
        action: values.action,
        outcome: values.outcome,
      },
      none: 'No events.',
      table: (rows) => fittedTable(columns, rows),
    });
  },
};

const unitMs: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

function timeOf(flag: string, text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const [, count, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const ms = unit === undefined ? Date.parse(text) : Date.now() - Number(count) * (unitMs[unit] ?? 0);
  if (Number.isNaN(ms)) throw new UsageError(`--${flag} is no time: ${JSON.stringify(text)}`);
  return new Date(ms).toISOString();
}

export const auditCommand = commandOf('audit', help, [listVerb], listVerb);
