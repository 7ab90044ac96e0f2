/**
 * Live leases straight into a store: granting a million through a server would take minutes. What is written is what
 * a server would have written, but for the history: its figures are told of them as well, or it would find them wrong.
 * Beside servers that run, the capacity's row is locked last, as they do it.
 */
import { priorities } from '../../../src/domain/jobs/job.ts';
import { stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Database } from '../../../src/store/database.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { tally } from '../../../src/store/sql/stats/tallies.ts';
import { endedLeases } from '../../support/history.ts';
import type { FloorPlace } from './floor.ts';
import { idPrefix, type LeaseSet, workerPrefix, workersOf } from './lease-set.ts';
import { job } from './messages.ts';

const leasesPerStatement = 20_000;
/** A server is there that soon after the seeding. */
const startS = 15;
/** More than any scenario seeds. */
const capacityTotal = 1_000_000_000;

export async function openStore(place: FloorPlace): Promise<Database> {
  const log = createLog({ level: 'warn', human: true });
  return openDatabase({ ...place, poolMax: 10, log });
}

/** Seeds a store that a server has open, or that is empty; the embedded one only where no server has it. */
export async function seedLeases(place: FloorPlace, sets: readonly LeaseSet[]): Promise<void> {
  const database = await openStore(place);
  try {
    await seedInto(database, sets);
  } finally {
    await database.close();
  }
}

export async function seedInto(database: Database, sets: readonly LeaseSet[]): Promise<void> {
  await migrate(database);
  for (const set of sets) await seedSet(database, set);
  // To the server that starts next it is as if the one before had died just now; otherwise it would make up for an outage.
  await database.query(`update pulse set alive_at = clock_timestamp() + ${startS} * interval '1 s'`, []);
}

async function seedSet(database: Database, set: LeaseSet): Promise<void> {
  const [lane] = await database.query<{ lane_id: number }>(insertLane, [job.addonId, job.jobType]);
  for (let from = 0; from < set.leases; from += leasesPerStatement) {
    const to = Math.min(from + leasesPerStatement, set.leases);
    const { from: firstS, to: lastS } = set.firstS ?? { from: set.ttlS, to: set.ttlS };
    await database.query(insertLeases, [
      from,
      to - 1,
      idPrefix('job', set.set),
      idPrefix('lease', set.set),
      lane?.lane_id,
      job.addonId,
      job.jobType,
      workersOf(set),
      set.ttlS,
      firstS,
      (lastS - firstS) / set.leases,
      JSON.stringify(job.payload),
      set.inARow ?? false,
      set.perWorker,
    ]);
  }
  await database.query('update capacity set total = $1::int, used = used + $2::bigint', [
    capacityTotal,
    set.leases * job.costUnits,
  ]);
}

const insertLane = `
insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy)
values ('seeded', '', $1, $2, '{}', '{}')
on conflict (lane_key) do update set stream = ''
returning lane_id`;

const normal = priorities.indexOf('NORMAL');

/** One attempt is all that a job has, so that one whose lease expires is over. */
const insertLeases = `
with granted as materialized (
  select n, ($3::text || lpad(to_hex(n), 12, '0'))::uuid as job_id, nextval('job_events_event_id_seq') as seq,
    clock_timestamp() as now, clock_timestamp() + ($10::float8 + n * $11::float8) * interval '1 s' as expires_at
  from generate_series($1::int, $2::int) as n
), job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, priority, cost_units, constraints, payload, is_unique,
    tags, max_attempts, retry_backoff_s, bytes, created_at)
  select job_id, seq, $5::int, $6::text, $7::text, ${normal}, ${job.costUnits}, '{}', $12::jsonb, false, '{}', 1, 0,
    length($12::text), now
  from granted
), live as (
  insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, check_at, attempts, attempts_limit,
    claims_lost, claimed_by, lease_id, lease_token, fence, lease_ttl_s, started_at, last_heartbeat_at, expires_at,
    cancel_requested, updated_at)
  select job_id, $5::int, seq, ${normal}, ${job.costUnits}, length($12::text), ${stateNumber('RUNNING')}, expires_at, 1, 1,
    0, '${workerPrefix}' || case when $13::boolean then n / $14::int else n % $8::int end, ($4::text || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(),
    nextval('lease_fence'), $9::int, now, now, expires_at, false, now
  from granted
  returning lane_id, cost_units, updated_at
)
${tally('live', 'updated_at', { running: 'count(*)', used: 'sum(cost_units)' })}`;

/** By how much the handling of expired leases came after their end, in ms; negative where it came before. */
export interface Expiries {
  handled: number;
  minMs: number;
  p50Ms: number;
  p99Ms: number;
  maxMs: number;
}

export async function readExpiries(place: FloorPlace, { set, leases }: LeaseSet): Promise<Expiries> {
  const database = await openStore(place);
  try {
    const [found] = await database.query<Expiries>(expiries, [idPrefix('lease', set), leases]);
    if (!found) throw new Error('the store did not answer');
    return found;
  } finally {
    await database.close();
  }
}

const expiries = `
select count(lateness)::int as "handled", min(lateness) as "minMs", max(lateness) as "maxMs",
  percentile_disc(0.5) within group (order by lateness) as "p50Ms",
  percentile_disc(0.99) within group (order by lateness) as "p99Ms"
from (
  select extract(epoch from ended_at - expires_at)::float8 * 1000 as lateness
  from generate_series(0, $2::int - 1) as n
  join ${endedLeases} on lease_id = ($1::text || lpad(to_hex(n), 12, '0'))::uuid
) ended`;
