import { urlHelp } from '../../client/http-client.ts';
import type { Command } from '../main.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { exitHelp, listFlags, pageHelp } from '../support/operator-client.ts';
import { age, printHelp } from '../support/output.ts';
import { showList } from '../support/pages.ts';
import { type Column, fittedTable } from '../support/table.ts';

interface AskBody {
  streams: string[];
  accept_job_types: string[];
  addon_id: string | null;
  max_units: number | null;
  constraints_capabilities: Record<string, boolean>;
  jobs: number;
  truncated: boolean;
}

interface ServerBody {
  server_id: string;
  host: string;
  pid: number;
  peer: string;
  connections: string[];
  since: string;
  last_heard_at: string;
  slots: number;
  asks: AskBody[];
  asks_truncated: boolean;
}

interface WorkerBody {
  worker_id: string;
  last_heard_at: string | null;
  active_leases: number;
  claims: number;
  servers: ServerBody[];
}

const flags = {
  'worker-id': 'string',
  stream: 'string',
  'job-type': 'string',
  ...listFlags,
} as const;

export const workersCommand: Command = {
  name: 'workers',
  flags,
  help: () => `Usage: leasehold workers [flags]

Lists the workers of all servers on the database: those that are connected, that
wait, that called in the last 30 seconds, or that hold jobs. A worker on several
servers has a line for each.

  --worker-id <name>    Only this worker.
  --stream <name>       Only workers that ask for this stream.
  --job-type <name>     Only workers that ask for this job type, or for all types.
${pageHelp}
  --json                Print one line of JSON: {workers, next_cursor}.
${urlHelp}

SLOTS are the jobs that a worker would take now. Servers refresh the list of
workers every 10 seconds.
${exitHelp}
`,
  async run(args) {
    const { help, values, words } = readFlags(args, flags);
    if (help) {
      printHelp(this.help());
      return 0;
    }
    if (words.length > 0) throw new UsageError(`takes no ${JSON.stringify(words[0])}`);
    return showList<WorkerBody>(values, {
      name: 'workers',
      path: '/api/scheduler/workers',
      filter: { worker_id: values['worker-id'], stream: values.stream, job_type: values['job-type'] },
      none: 'No workers.',
      table: (rows) => fittedTable(columns, rows.flatMap(linesOf)),
    });
  },
};

interface Line {
  worker: WorkerBody;
  server: ServerBody | undefined;
}

const linesOf = (worker: WorkerBody): Line[] =>
  worker.servers.length === 0
    ? [{ worker, server: undefined }]
    : worker.servers.map((server) => ({ worker, server }));

const columns: readonly Column<Line>[] = [
  { heading: 'WORKER', of: ({ worker }) => worker.worker_id, atLeast: 12 },
  { heading: 'LEASES', of: ({ worker }) => worker.active_leases },
  { heading: 'CLAIMS', of: ({ worker }) => worker.claims, rank: 5 },
  { heading: 'SLOTS', of: ({ server }) => server?.slots ?? 0 },
  {
    heading: 'LAST CALL',
    of: ({ worker, server }) => {
      const time = server?.last_heard_at ?? worker.last_heard_at;
      return time === null ? null : age(time);
    },
  },
  {
    heading: 'CONNECTION',
    of: ({ server }) => (server ? server.connections.map(wordsOf).join(', ') : 'none'),
  },
  { heading: 'ASKS FOR', of: ({ server }) => server && asksWords(server), wraps: true, atLeast: 20 },
  { heading: 'SERVER', of: ({ server }) => server && `${server.host}/${server.pid}`, atLeast: 12, rank: 1 },
  { heading: 'PEER', of: ({ server }) => server?.peer, rank: 2 },
  { heading: 'SINCE', of: ({ server }) => server && age(server.since), rank: 3 },
];

const connectionWords: Readonly<Record<string, string>> = {
  WORK_STREAM: 'work',
  HEARTBEAT_STREAM: 'heartbeats',
  WAITING: 'waiting',
  POLLING: 'polling',
};
/** A newer server may report kinds of connections that this version does not know. */
const wordsOf = (connection: string): string => connectionWords[connection] ?? connection.toLowerCase();

const asksWords = ({ asks, asks_truncated }: ServerBody): string =>
  [...new Set(asks.map(askWords)), ...(asks_truncated ? ['…'] : [])].join('; ');

function askWords(ask: AskBody): string {
  const types = ask.accept_job_types.length === 0 ? 'any type' : ask.accept_job_types.join(',');
  const needs = Object.entries(ask.constraints_capabilities).map(([name, has]) =>
    has ? `+${name.replace(/_available$/, '')}` : `-${name.replace(/_heavy$/, '')}`,
  );
  return [
    ask.streams.length === 0 ? '' : `stream ${ask.streams.join(',')}:`,
    ask.truncated ? `${types},…` : types,
    ...needs,
    ask.max_units === null ? '' : `up to ${ask.max_units} units`,
    ask.addon_id === null ? '' : `of ${ask.addon_id}`,
  ]
    .filter((part) => part !== '')
    .join(' ');
}
