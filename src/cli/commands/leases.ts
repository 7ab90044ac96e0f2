import { urlHelp } from '../../client/http-client.ts';
import { readFlags, UsageError } from '../support/args.ts';
import { styleOf } from '../support/color.ts';
import {
  commonFlags,
  exitHelp,
  listFlags,
  onlyWord,
  type Page,
  pageHelp,
  pagingOf,
  readPages,
  withServer,
} from '../support/operator-client.ts';
import { age, print, printJson, stamp } from '../support/output.ts';
import { showRows } from '../support/pages.ts';
import { commandOf, type Subcommand } from '../support/subcommands.ts';
import { type Column, fittedTable, listing } from '../support/table.ts';
import { entryOf } from './jobs-list.ts';

const help = () => `Usage: leasehold leases list [flags]
       leasehold leases get <lease_id> [flags]

list shows leases, the newest first; by default only the active ones. get shows
one lease, active or ended. 'leasehold explain' shows its condition, or why it
ended.

  --state <states>      ACTIVE, EXPIRED or RELEASED, separated by commas, or 'any';
                        the default is ACTIVE.
  --worker-id <name>    Only leases of this worker.
  --job-id <id>         Only leases of this job.
${pageHelp}
  --json                Print one line of JSON: {leases, next_cursor}, or {lease}.
${urlHelp}

${exitHelp}
`;

/** A lease as the RPC returns it in JSON: fields that are empty or false are omitted. */
interface LeaseMessage {
  leaseId: string;
  jobId: string;
  addonId: string;
  workerId: string;
  costUnits: number;
  ttlSec: number;
  state: string;
  grantedAt: string;
  lastHeartbeatAt: string;
  expiresAt: string;
  fence: string;
  attempt: number;
  endedAt?: string;
  releaseStatus?: string;
  error?: string;
  errorDetail?: object;
  requeued?: boolean;
  deadLettered?: boolean;
}

/** The lease with the field names of the REST routes. */
const leaseBody = (lease: LeaseMessage) => ({
  lease_id: lease.leaseId,
  job_id: lease.jobId,
  addon_id: lease.addonId,
  cost_units: lease.costUnits,
  ttl_sec: lease.ttlSec,
  state: lease.state.replace(/^LEASE_STATE_/, ''),
  granted_at: lease.grantedAt,
  last_heartbeat_at: lease.lastHeartbeatAt,
  expires_at: lease.expiresAt,
  worker_id: lease.workerId,
  fence: Number(lease.fence),
  attempt: lease.attempt,
  ended_at: lease.endedAt ?? null,
  release_status: lease.releaseStatus?.replace(/^FINAL_STATUS_/, '') ?? null,
  error: lease.error ?? null,
  error_detail: lease.errorDetail ?? null,
  requeued: lease.requeued ?? false,
  dead_lettered: lease.deadLettered ?? false,
});
type LeaseBody = ReturnType<typeof leaseBody>;

const stateWords = ['ACTIVE', 'EXPIRED', 'RELEASED'];

function statesOf(given: string | undefined): string[] {
  const words = (given ?? 'ACTIVE').toUpperCase().split(',');
  if (words.includes('ANY')) return [];
  const wrong = words.find((word) => !stateWords.includes(word));
  if (wrong !== undefined)
    throw new UsageError(`--state must be of ${stateWords.join(', ')} or any, not ${JSON.stringify(wrong)}`);
  return words.map((word) => `LEASE_STATE_${word}`);
}

const leaseFlags = {
  state: 'string',
  'worker-id': 'string',
  'job-id': 'string',
  ...listFlags,
} as const;

const listVerb: Subcommand = {
  name: 'list',
  flags: leaseFlags,
  async run(args) {
    const { values, words } = readFlags(args, leaseFlags);
    if (words.length > 0) throw new UsageError(`lists leases, and takes no ${JSON.stringify(words[0])}`);
    const paging = pagingOf(values);
    const filter = {
      states: statesOf(values.state),
      ...(values['worker-id'] === undefined ? {} : { workerId: values['worker-id'] }),
      ...(values['job-id'] === undefined ? {} : { jobId: values['job-id'] }),
    };
    return withServer(values.url, async (server) => {
      const page = await readPages(paging, async (limit, cursor): Promise<Page<LeaseBody>> => {
        const path = '/leasehold.v1.LeasesService/ListLeases';
        const page = await server.post<{ leases?: LeaseMessage[]; nextCursor?: string }>(path, {
          ...filter,
          limit,
          ...(cursor === undefined ? {} : { cursor }),
        });
        return { rows: (page.leases ?? []).map(leaseBody), next_cursor: page.nextCursor ?? null };
      });
      return showRows(
        values,
        { name: 'leases', none: 'No leases.', table: (rows) => fittedTable(columns, rows) },
        page,
      );
    });
  },
};

const columns: readonly Column<LeaseBody>[] = [
  { heading: 'LEASE', of: ({ lease_id }) => lease_id },
  { heading: 'JOB', of: ({ job_id }) => job_id, rank: 5 },
  { heading: 'STATE', of: ({ state }) => state, style: ({ state }) => styleOf(state) },
  {
    heading: 'STATUS',
    of: ({ release_status }) => release_status,
    style: ({ release_status }) => styleOf(release_status ?? ''),
    rank: 4,
  },
  { heading: 'WORKER', of: ({ worker_id }) => worker_id, atLeast: 12, rank: 1 },
  { heading: 'UNITS', of: ({ cost_units }) => cost_units, rank: 6 },
  { heading: 'ATTEMPT', of: ({ attempt }) => attempt, rank: 7 },
  { heading: 'FENCE', of: ({ fence }) => fence, rank: 9 },
  { heading: 'GRANTED', of: ({ granted_at }) => stamp(granted_at), rank: 8 },
  { heading: 'HEARTBEAT', of: ({ last_heartbeat_at }) => age(last_heartbeat_at), rank: 3 },
  { heading: 'ENDS', of: ({ ended_at, expires_at }) => age(ended_at ?? expires_at), rank: 2 },
];

const getVerb: Subcommand = {
  name: 'get',
  flags: commonFlags,
  async run(args) {
    const { values, words } = readFlags(args, commonFlags);
    const leaseId = onlyWord(words, 'lease');
    return withServer(values.url, async (server) => {
      const path = `/api/scheduler/lease/${encodeURIComponent(leaseId)}`;
      const found = await server.get<{ lease: LeaseBody }>(path);
      if (values.json) printJson(found);
      else print(listing(Object.entries(found.lease).map(entryOf)));
      return 0;
    });
  },
};

export const leasesCommand = commandOf('leases', help, [listVerb, getVerb]);
