import { leasedStates, stateNumber } from '../../domain/machine.ts';
import { hot } from '../prepared.ts';
import type { Sql } from '../sql.ts';

const leased = leasedStates.map(stateNumber).join(', ');
const nowhere = '00000000-0000-0000-0000-000000000000';

const beat = hot(`
with pulse_now as materialized (
  select alive_at from pulse where pulse_id = 1 for update
), clock as materialized (
  select clock_timestamp() as now from (select count(*) from pulse_now) as locked
), outage as (
  insert into outages (began_at, ended_at, next_lease_id, leases_extended)
  select alive_at, now, '${nowhere}', 0 from pulse_now, clock
  where now - alive_at > $1::float8 * interval '1 ms'
    and exists (select from live_jobs where state in (${leased}) and state <> ${stateNumber('QUEUED')})
  returning extract(epoch from ended_at - began_at)::float8 * 1000 as ms
), beaten as (
  update pulse set alive_at = greatest(alive_at, now) from clock where pulse_id = 1
  returning pulse_id
)
select (select ms from outage) as outage_ms from beaten`);

// A statement of its own: one that has waited for the pulse does not see the outage that was found meanwhile.
const open = hot('select exists (select from outages where next_lease_id is not null) as unfinished');

export interface Beaten {
  /** How long no server had been alive, where that was longer than allowed and leases were held meanwhile. */
  outageMs: number | null;
  /** There are outages whose leases have not all been looked at. */
  unfinished: boolean;
}

/** Says that a server is alive, and finds out whether none was for longer than `silenceMs`. */
export async function beatPulse(sql: Sql, silenceMs: number): Promise<Beaten> {
  const [beaten] = await sql.query<{ outage_ms: number | null }>(beat, [silenceMs]);
  if (!beaten) throw new Error('the row of the pulse is gone');
  const [outages] = await sql.query<{ unfinished: boolean }>(open, []);
  return { outageMs: beaten.outage_ms, unfinished: outages?.unfinished ?? false };
}

const makeUp = `
with outage as materialized (
  select * from outages where next_lease_id is not null order by outage_id limit 1 for update
), chunk as materialized (
  select live.job_id, live.lease_id from live_jobs live, outage
  where live.lease_id > outage.next_lease_id order by live.lease_id limit $1
), locked as materialized (
  select live.* from chunk join live_jobs live on live.job_id = chunk.job_id order by live.job_id for update of live
), extended as (
  update live_jobs live set expires_at = greatest(live.expires_at, least(
    live.expires_at + (outage.ended_at - outage.began_at),
    outage.ended_at + live.lease_ttl_s * interval '1 s' + $2::float8 * interval '1 ms', live.lease_ends_at))
  from locked, outage
  where live.job_id = locked.job_id and locked.state in (${leased})
    and locked.last_heartbeat_at <= outage.ended_at and locked.expires_at > outage.began_at
  returning live.job_id
), moved as (
  update outages set leases_extended = outages.leases_extended + (select count(*) from extended),
    next_lease_id = case when (select count(*) from chunk) = $1
      then (select lease_id from chunk order by lease_id desc limit 1) end
  from outage where outages.outage_id = outage.outage_id
  returning outages.next_lease_id is null as done, outages.leases_extended
)
select done, leases_extended from moved`;

export interface MadeUp {
  /** The outage's last leases have been looked at. */
  done: boolean;
  leasesExtended: number;
}

/**
 * Gives up to `limit` leases back what they lost by the oldest outage that is not finished: its length, but never
 * more than a heartbeat would have given them at its end. Answers nothing where there is none.
 */
export async function makeUpForOutage(sql: Sql, limit: number, graceMs: number): Promise<MadeUp | undefined> {
  const [row] = await sql.query<{ done: boolean; leases_extended: number }>(makeUp, [limit, graceMs]);
  return row && { done: row.done, leasesExtended: row.leases_extended };
}
