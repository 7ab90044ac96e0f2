import type { Holder } from '../../../domain/access/holder.ts';
import { leasedStates, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Lease } from '../../../domain/leases/lease.ts';
import { lateralByKey, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { uuidArray } from '../array-params.ts';
import {
  activeLeaseColumns,
  endedLeaseColumns,
  type LeaseRecord,
  outcomeLeaseColumns,
  toLease,
} from './record.ts';

/** A lease with data that only its owner may see. */
export interface KnownLease {
  lease: Lease;
  token: string;
  holder: Holder;
  /** The stream of its job. */
  stream: string | null;
  /** All ids that the attempt's message had, if the lease has ended and they were kept. */
  messageIds: readonly string[] | null;
  cancelRequested: boolean;
  /** Remaining time of an active lease, by the database's clock. */
  ttlRemainingMs: number;
}

const leased = `live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])`;

const remaining = `(extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as ttl_remaining_ms`;

/**
 * One statement reads all tables: a lease that ends in between would otherwise be in none. Rows are found by
 * key first (`offset 0`), and only then is their state checked: with both conditions at once, the planner may
 * scan all leased rows.
 */
const read = preparedStatement(
  ['leaseIds'],
  `
select found.*, ${remaining} from (
  select ${activeLeaseColumns('live')}, live.lease_token, live.holder, live.cancel_requested
  from (select * from live_jobs where lease_id = any (@leaseIds::uuid[]) offset 0) live
  cross join ${lateralByKey('jobs', 'job_id', 'live.job_id')} job
  where ${leased}
  union all
  select ${endedLeaseColumns('lease')}, lease.lease_token, lease.holder, false
  from unnest(@leaseIds::uuid[]) as wanted (lease_id)
    cross join ${lateralByKey('leases', 'lease_id', 'wanted.lease_id')} lease
  cross join ${lateralByKey('jobs', 'job_id', 'lease.job_id')} job
  union all
  select ${outcomeLeaseColumns('outcome')}, outcome.lease_token, outcome.holder, false
  from unnest(@leaseIds::uuid[]) as wanted (lease_id) cross join lateral (
    select * from job_outcomes where job_outcomes.lease_id = wanted.lease_id and fence is not null offset 0
  ) outcome cross join ${lateralByKey('jobs', 'job_id', 'outcome.job_id')} job
) found`,
);

/** The leases with these ids that exist, active or ended, in no order. */
export async function readLeases(
  sql: Sql,
  leaseIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, KnownLease>> {
  if (leaseIds.length === 0) return new Map();
  type Row = LeaseRecord & {
    lease_token: string;
    holder: Holder;
    cancel_requested: boolean;
    ttl_remaining_ms: number;
  };
  const rows = await read.query<Row>(sql, { leaseIds: uuidArray(leaseIds) }, signal);
  return new Map(
    rows.map((row) => {
      const { cancel_requested: cancelRequested, ttl_remaining_ms } = row;
      return [
        row.lease_id,
        { ...knownLease(row), cancelRequested, ttlRemainingMs: Math.floor(ttl_remaining_ms) },
      ];
    }),
  );
}

/** An ended lease. */
export const knownLease = (record: LeaseRecord & { lease_token: string; holder: Holder }): KnownLease => ({
  lease: toLease(record),
  token: record.lease_token,
  holder: record.holder,
  stream: record.lease_stream ?? null,
  messageIds: record.lease_message_ids ?? null,
  cancelRequested: false,
  ttlRemainingMs: 0,
});

const findByToken = preparedStatement(
  ['jobIds', 'tokens'],
  `
select wanted.n::int, coalesce(
  (select lease_id from live_jobs live where live.job_id = wanted.job_id and live.lease_token = wanted.token),
  (select lease_id from job_outcomes outcome
    where outcome.job_id = wanted.job_id and outcome.lease_token = wanted.token),
  (select lease_id from leases where leases.job_id = wanted.job_id and leases.lease_token = wanted.token))
    as lease_id,
  (select created_at from jobs where jobs.job_id = wanted.job_id) is not null as has_job
from unnest(@jobIds::uuid[], @tokens::uuid[]) with ordinality as wanted (job_id, token, n)`,
);

/**
 * The leases with these jobs and tokens, active or ended; null if the job has no such lease, undefined if
 * there is no job.
 */
export async function findLeasesByToken(
  sql: Sql,
  wanted: readonly { jobId: string; token: string }[],
  signal?: AbortSignal,
): Promise<(string | null | undefined)[]> {
  const found = new Array<string | null | undefined>(wanted.length);
  const rows = await findByToken.query<{ n: number; lease_id: string | null; has_job: boolean }>(
    sql,
    {
      jobIds: uuidArray(wanted.map(({ jobId }) => jobId)),
      tokens: uuidArray(wanted.map(({ token }) => token)),
    },
    signal,
  );
  for (const { n, lease_id, has_job } of rows) found[n - 1] = has_job ? lease_id : undefined;
  return found;
}
