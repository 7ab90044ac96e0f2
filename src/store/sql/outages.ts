import { type Kysely, sql as raw } from 'kysely';
import { idleMs, ownerTtlMs } from '../../domain/files/file-owners.ts';
import { claimedStates, leasedStates, stateNumber } from '../../domain/jobs/state-machine.ts';
import { repeatable } from '../connection/repeatable.ts';
import { type EntitySql, keyEquals, lateralByKey, type Sql } from '../connection/sql.ts';
import { preparedStatement, statement } from '../connection/statement.ts';
import { select, type Tables } from '../schema/tables.ts';

const leased = leasedStates.map(stateNumber).join(', ');
const claimed = claimedStates.map(stateNumber).join(', ');
/** A longer time without an update of the `pulse` row is an outage. */
export const silenceMs = 3_000;

const nowhere = '00000000-0000-0000-0000-000000000000';

/**
 * Whether claims and leases may be declared expired now, by the database's own record: some server has been
 * alive without a break, and no outage remains to be compensated. A server's own clock cannot show a time in
 * which it or the database was stopped.
 */
export const isAwake = (now: string): string => `(
  (select alive_at from pulse where pulse_id = 1) > ${now} - interval '${silenceMs} ms'
  and not exists (select from outages where next_lease_id is not null)
)`;

// The statement searches for holders only after an outage (`case`; the planner evaluates that condition
// first). On every update of the `pulse` row the search would scan the dead tuples of all ended leases that
// vacuum cannot remove yet. Owners of files are few beside leases, and are compensated at once, in the
// statement that detects the outage. A second run finds the outage that the first wrote as an unfinished one.
const recordLiveness = repeatable(
  preparedStatement(
    ['allowedMs'],
    `
with last_alive as materialized (
  select alive_at from pulse where pulse_id = 1 for update
), clock as materialized (
  select clock_timestamp() as now from (select count(*) from last_alive) as locked
), silence as materialized (
  select alive_at as began_at, now as ended_at from last_alive, clock
  where case when now - alive_at > @allowedMs::float8 * interval '1 ms' then
    exists (select from live_jobs where state in (${claimed}, ${leased})
      and state <> ${stateNumber('QUEUED')})
    or exists (select from file_owners where check_at is not null)
  end
), silent_owner as materialized (
  select owner.owner_id from silence cross join lateral (
    select owner_id from (select owner_id from file_owners where check_at is not null offset 0) due
      order by owner_id
  ) living cross join ${lateralByKey('file_owners', 'owner_id', 'living.owner_id', 'for update skip locked')} owner
  where owner.last_heartbeat_at <= silence.ended_at and owner.expires_at > silence.began_at
), extended as (
  update file_owners owner set
    expires_at = greatest(owner.expires_at, least(
      owner.expires_at + (silence.ended_at - silence.began_at),
        silence.ended_at + interval '${ownerTtlMs} ms')),
    idle_at = case when owner.idle_at is not null then greatest(owner.idle_at, least(
      owner.idle_at + (silence.ended_at - silence.began_at), silence.ended_at + interval '${idleMs} ms')) end
  from silent_owner, silence where ${keyEquals('owner.owner_id', 'silent_owner.owner_id')}
  returning owner.owner_id
), outage as (
  insert into outages (began_at, ended_at, next_lease_id, leases_extended, owners_extended)
  select began_at, ended_at, '${nowhere}', 0, (select count(*) from extended) from silence
  returning extract(epoch from ended_at - began_at)::float8 * 1000 as ms
), recorded as (
  update pulse set alive_at = greatest(alive_at, now) from clock where pulse_id = 1
  returning pulse_id
)
select (select ms from outage) as outage_ms from recorded`,
  ),
);

// A separate statement: one that waited for the `pulse` row does not see an outage that was recorded
// meanwhile.
const openOutages = (tables: Kysely<Tables>) =>
  tables.selectNoFrom((eb) => [
    eb
      .exists(eb.selectFrom('outages').select('outage_id').where('next_lease_id', 'is not', null))
      .$castTo<boolean>()
      .as('unfinished'),
    raw<boolean>`current_setting('synchronous_standby_names') <> ''`.as('synchronous'),
  ]);

export interface LifeRecorded {
  /**
   * Duration without a live server, if it was longer than allowed while jobs were claimed or leased; null
   * otherwise.
   */
  outageMs: number | null;
  /** Some outages have claims and leases that are not compensated yet. */
  unfinished: boolean;
  /** PostgreSQL waits for a standby at each commit. */
  synchronous: boolean;
}

/** Records that a server is alive, and detects an outage of more than `allowedMs`. */
export async function recordLife(sql: EntitySql, allowedMs: number = silenceMs): Promise<LifeRecorded> {
  const [recorded] = await recordLiveness.query<{ outage_ms: number | null }>(sql, { allowedMs });
  if (!recorded) throw new Error('the row of the pulse is gone');
  const [found] = await select(sql, openOutages);
  return {
    outageMs: recorded.outage_ms,
    unfinished: found?.unfinished ?? false,
    synchronous: found?.synchronous ?? true,
  };
}

// Claims have no order of their own. Compensated claims are recognised by their `updated_at`, which is just
// after the outage. A claim that another server has just compensated is checked again after the lock, and
// another one is taken instead. A statement that waits for no row needs no order of locks.
const compensateClaims = statement(
  ['limit', 'claimTtlMs'],
  `
with outage as materialized (
  select * from outages where next_lease_id is not null order by outage_id limit 1 for update
), locked as materialized (
  select live.job_id, outage.ended_at, greatest(live.claim_expires_at, least(
    live.claim_expires_at + (outage.ended_at - outage.began_at),
    outage.ended_at + @claimTtlMs::float8 * interval '1 ms')) as until
  from outage cross join live_jobs live
  where live.state in (${claimed}) and live.state <> ${stateNumber('QUEUED')}
    and live.updated_at <= outage.ended_at and live.claim_expires_at > outage.began_at
  limit @limit
  for update of live skip locked
), extended as (
  update live_jobs live set claim_expires_at = locked.until, check_at = locked.until,
    updated_at = locked.ended_at + interval '1 microsecond'
  from locked where ${keyEquals('live.job_id', 'locked.job_id')}
  returning live.job_id
), alive as (
  update pulse set alive_at = greatest(alive_at, clock_timestamp()) where pulse_id = 1
)
select count(*)::int as extended from extended`,
);

const compensateLeases = statement(
  ['limit'],
  `
with outage as materialized (
  select * from outages where next_lease_id is not null order by outage_id limit 1 for update
), chunk as materialized (
  select job_id, lease_id from live_jobs
  where lease_id > (select next_lease_id from outage) order by lease_id limit @limit
), locked as materialized (
  select live.* from (select * from chunk order by job_id) chunk
  cross join ${lateralByKey('live_jobs', 'job_id', 'chunk.job_id', 'for update skip locked')} live
), extended as (
  update live_jobs live set expires_at = greatest(live.expires_at, least(
    live.expires_at + (outage.ended_at - outage.began_at),
    outage.ended_at + (live.lease_ttl_s + live.lease_grace_s) * interval '1 s', live.lease_ends_at))
  from locked, outage
  where ${keyEquals('live.job_id', 'locked.job_id')} and locked.state in (${leased})
    and locked.last_heartbeat_at <= outage.ended_at and locked.expires_at > outage.began_at
  returning live.job_id
), alive as (
  -- The compensation takes time, and is no outage.
  update pulse set alive_at = greatest(alive_at, clock_timestamp()) where pulse_id = 1
), moved as (
  update outages set leases_extended = outages.leases_extended + (select count(*) from extended),
    next_lease_id = case when (select count(*) from chunk) = @limit
      then (select lease_id from chunk order by lease_id desc limit 1) end
  from outage where outages.outage_id = outage.outage_id
  returning outages.next_lease_id is null as done, outages.leases_extended
)
select done, leases_extended from moved`,
);

export interface Compensated {
  /** All leases of the outage are compensated, and its claims before them. */
  done: boolean;
  leasesExtended: number;
}

/**
 * Compensates up to `limit` claims, and after them leases, for the oldest unfinished outage. Each gets the
 * length of the outage, but never more than a new claim, or a heartbeat, would give at its end. Returns
 * undefined if there is no unfinished outage. Locked rows are skipped: the transactions that hold them are
 * about to change them.
 */
export async function compensateOutage(
  sql: Sql,
  limit: number,
  claimTtlMs: number,
): Promise<Compensated | undefined> {
  const [claims] = await compensateClaims.query<{ extended: number }>(sql, { limit, claimTtlMs });
  if (claims && claims.extended > 0) return { done: false, leasesExtended: 0 };
  const [row] = await compensateLeases.query<{ done: boolean; leases_extended: number }>(sql, { limit });
  return row && { done: row.done, leasesExtended: row.leases_extended };
}
