import type { OwnerProfile } from '../../../domain/files/file-lease.ts';
import {
  idleMs,
  type Owner,
  ownerStateNumber,
  ownerStates,
  ownerTtlMs,
} from '../../../domain/files/file-owners.ts';
import { prepared } from '../../connection/prepared-client.ts';
import { keyEquals, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { booleanArray, numberArray, textArray } from '../array-params.ts';
import { isAwake } from '../outages.ts';

/**
 * Owners of file leases. All transactions lock in one order: owners by their ids, then files by their ids.
 * Contentions, losses and held files belong to their owner and change only under its lock. While a
 * transaction has locked an owner, no other one grants it a file or takes one from it.
 */

const alive = ownerStateNumber('ALIVE');

/** An owner's columns, under the names that they have in the record. */
export interface OwnerRecord {
  owner_id: string;
  agent: string | null;
  host: string | null;
  pid: number | null;
  branch: string | null;
  parent_owner_id: string | null;
  state: number;
  born_at: string;
  last_heartbeat_at: string;
  last_activity_at: string;
  expires_at: string;
  stopped_at: string | null;
  idle_at: string | null;
  ended_at: string | null;
  has_losses: boolean;
}

export const ownerColumns = (owner: string): string =>
  [
    'owner_id',
    'agent',
    'host',
    'pid',
    'branch',
    'parent_owner_id',
    'state',
    'born_at',
    'last_heartbeat_at',
    'last_activity_at',
    'expires_at',
    'stopped_at',
    'idle_at',
    'ended_at',
    'has_losses',
  ]
    .map((column) => `${owner}.${column}`)
    .join(', ');

/** The columns of an owner's profile. */
export interface ProfileRecord {
  agent: string | null;
  host: string | null;
  pid: number | null;
  branch: string | null;
  parent_owner_id: string | null;
}

export const profileColumns = (owner: string): string =>
  `${owner}.agent, ${owner}.host, ${owner}.pid, ${owner}.branch, ${owner}.parent_owner_id`;

export const toProfile = (record: ProfileRecord): OwnerProfile => ({
  agent: record.agent,
  host: record.host,
  pid: record.pid,
  branch: record.branch,
  parentOwnerId: record.parent_owner_id,
});

export const toOwner = (record: OwnerRecord): Owner => ({
  ownerId: record.owner_id,
  profile: toProfile(record),
  state: ownerStateNamed(record.state),
  bornAtMs: timeMs(record.born_at),
  lastHeartbeatAtMs: timeMs(record.last_heartbeat_at),
  lastActivityAtMs: timeMs(record.last_activity_at),
  expiresAtMs: timeMs(record.expires_at),
  stoppedAtMs: timeMs(record.stopped_at),
  idleAtMs: timeMs(record.idle_at),
  endedAtMs: timeMs(record.ended_at),
  hasLosses: record.has_losses,
});

function ownerStateNamed(number: number) {
  const state = ownerStates[number];
  if (!state) throw new Error(`the database holds an owner's state this version does not know: ${number}`);
  return state;
}

// Ids are inserted in one order, so that two batches with the same new owners cannot deadlock.
const add = prepared(`
insert into file_owners (owner_id, state, born_at, last_heartbeat_at, last_activity_at, expires_at, has_losses)
select owner_id, ${ownerStateNumber('NEW')}, now, now, now, now, false
from unnest($1::text[]) as owner_id, (select clock_timestamp() as now) clock
order by owner_id
on conflict (owner_id) do nothing`);

/** Inserts rows for owners that have none, so that they can be locked. */
export async function addOwners(sql: Sql, ownerIds: readonly string[], signal?: AbortSignal): Promise<void> {
  await sql.query(add, [textArray(ownerIds)], signal);
}

const lock = (how: string) =>
  prepared(`
select ${ownerColumns('owner')}
from (select owner_id from unnest($1::text[]) as owner_id order by owner_id) wanted
cross join ${lateralByKey('file_owners', 'owner_id', 'wanted.owner_id', how)} owner`);

const lockAll = lock('for update');
const lockFree = lock('for update skip locked');

/** Locks these owners, each named once. Without `wait`, owners locked by other transactions are left out. */
export async function lockOwners(
  sql: Sql,
  ownerIds: readonly string[],
  { wait, signal }: { wait: boolean; signal?: AbortSignal | undefined },
): Promise<Map<string, Owner>> {
  const rows = await sql.query<OwnerRecord>(wait ? lockAll : lockFree, [textArray(ownerIds)], signal);
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const due = prepared(`
with due as materialized (
  (select owner_id from file_owners where check_at <= (select clock_timestamp()) order by check_at limit $1)
  union
  (select owner_id from (
    select owner_id from file_contentions where check_at <= (select clock_timestamp()) order by check_at limit $1
  ) contention)
)
select ${ownerColumns('owner')}
from (select * from due order by owner_id) due
cross join ${lateralByKey('file_owners', 'owner_id', 'due.owner_id', 'for update skip locked')} owner`);

/** Locks owners that are due for a check, or whose contentions are. */
export async function lockDueOwners(sql: Sql, limit: number): Promise<Map<string, Owner>> {
  const rows = await sql.query<OwnerRecord>(due, [limit]);
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const nextDue = prepared(`
select extract(epoch from least(
  (select check_at from file_owners where check_at is not null order by check_at limit 1),
  (select check_at from file_contentions where check_at is not null order by check_at limit 1)
) - clock_timestamp())::float8 * 1000 as ms`);

/** Time until the next owner or contention is due; null if none is pending. */
export async function nextFileDueInMs(sql: Sql): Promise<number | null> {
  const [row] = await sql.query<{ ms: number | null }>(nextDue, []);
  return row?.ms ?? null;
}

const read = prepared(`
select ${ownerColumns('owner')}
from unnest($1::text[]) as wanted (owner_id) cross join ${lateralByKey('file_owners', 'owner_id', 'wanted.owner_id')} owner`);

/** The current rows of these owners, without locks. */
export async function readOwners(
  sql: Sql,
  ownerIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, Owner>> {
  const rows = await sql.query<OwnerRecord>(read, [textArray(ownerIds)], signal);
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

/**
 * The database's time, and whether owners may be declared dead at it; see `isAwake`. Must be read after all
 * locks.
 */
export interface Clock {
  nowMs: number;
  awake: boolean;
}

const clock = prepared(`
select now::text, ${isAwake('now')} as awake
from (select date_trunc('milliseconds', clock_timestamp()) as now) clock`);

export async function readClock(sql: Sql): Promise<Clock> {
  const [row] = await sql.query<{ now: string; awake: boolean }>(clock, []);
  if (!row) throw new Error('the database did not tell the time');
  return { nowMs: timeMs(row.now), awake: row.awake };
}

/** The activity of a locked owner: it works, or it has stopped. */
export interface OwnerTouch {
  ownerId: string;
  kind: 'active' | 'stopped';
  /** A new life begins. */
  born: boolean;
  /** Its reported profile; null fields stay as they were. */
  profile?: OwnerProfile;
}

/** The update, for a statement that has a `clock`; its parameters begin with number `first`. */
export const touching = (first: number): string => `
update file_owners owner set state = ${alive}, last_heartbeat_at = now,
  expires_at = now + interval '${ownerTtlMs} ms',
  last_activity_at = case when stops then owner.last_activity_at else now end,
  stopped_at = case when stops then coalesce(owner.stopped_at, now) end,
  idle_at = case when not stops then null when owner.stopped_at is null then now + interval '${idleMs} ms'
    else owner.idle_at end,
  check_at = case when born then now + interval '${ownerTtlMs} ms'
    when stops and owner.stopped_at is null then least(owner.check_at, now + interval '${idleMs} ms')
    else owner.check_at end,
  born_at = case when born then now else owner.born_at end,
  ended_at = null, has_losses = owner.has_losses and not born,
  agent = coalesce(touched.agent, owner.agent), host = coalesce(touched.host, owner.host),
  pid = coalesce(touched.pid, owner.pid), branch = coalesce(touched.branch, owner.branch),
  parent_owner_id = coalesce(touched.parent_owner_id, owner.parent_owner_id)
from clock, unnest($${first}::text[], $${first + 1}::boolean[], $${first + 2}::boolean[], $${first + 3}::text[],
  $${first + 4}::text[], $${first + 5}::int[], $${first + 6}::text[], $${first + 7}::text[])
  as touched (owner_id, stops, born, agent, host, pid, branch, parent_owner_id)
where ${keyEquals('owner.owner_id', 'touched.owner_id')}`;

export const touchParams = (touches: readonly OwnerTouch[]): unknown[] => [
  textArray(touches.map(({ ownerId }) => ownerId)),
  booleanArray(touches.map(({ kind }) => kind === 'stopped')),
  booleanArray(touches.map(({ born }) => born)),
  textArray(touches.map(({ profile }) => profile?.agent ?? null)),
  textArray(touches.map(({ profile }) => profile?.host ?? null)),
  numberArray(touches.map(({ profile }) => profile?.pid ?? null)),
  textArray(touches.map(({ profile }) => profile?.branch ?? null)),
  textArray(touches.map(({ profile }) => profile?.parentOwnerId ?? null)),
];

const touch = prepared(`
with clock as materialized (select to_timestamp($1::float8 / 1000.0) as now)
${touching(2)}
returning ${ownerColumns('owner')}`);

/** Writes the activity of locked owners, and returns their new state. */
export async function touchOwners(
  sql: Sql,
  touches: readonly OwnerTouch[],
  nowMs: number,
): Promise<Map<string, Owner>> {
  if (touches.length === 0) return new Map();
  const rows = await sql.query<OwnerRecord>(touch, [nowMs, ...touchParams(touches)]);
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const end = prepared(`
with ended as (
  update file_owners owner set state = ending.state, ended_at = to_timestamp($1::float8 / 1000.0), stopped_at = null,
    idle_at = null, check_at = null, has_losses = false
  from unnest($2::text[], $3::smallint[]) as ending (owner_id, state)
  where ${keyEquals('owner.owner_id', 'ending.owner_id')}
  returning ${ownerColumns('owner')}
), forgotten as (
  delete from file_losses loss using ended where ${keyEquals('loss.owner_id', 'ended.owner_id')}
)
select * from ended`);

/** Ends the lives of locked owners. */
export async function endOwners(
  sql: Sql,
  endings: readonly { ownerId: string; state: 'ENDED' | 'DEAD' }[],
  nowMs: number,
): Promise<Map<string, Owner>> {
  if (endings.length === 0) return new Map();
  const rows = await sql.query<OwnerRecord>(end, [
    nowMs,
    textArray(endings.map(({ ownerId }) => ownerId)),
    numberArray(endings.map(({ state }) => ownerStateNumber(state))),
  ]);
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const rearm = prepared(`
update file_owners owner set check_at = least(owner.expires_at, owner.idle_at)
from unnest($1::text[]) as wanted (owner_id)
where ${keyEquals('owner.owner_id', 'wanted.owner_id')} and owner.check_at is distinct from least(owner.expires_at, owner.idle_at)`);

/** Makes the reaper check these locked, live owners when they may have died or become idle. */
export async function rearmOwners(sql: Sql, ownerIds: readonly string[]): Promise<void> {
  if (ownerIds.length > 0) await sql.query(rearm, [textArray(ownerIds)]);
}

const rest = prepared(
  `update file_owners set idle_at = null, check_at = expires_at where owner_id = any ($1::text[])`,
);

/** These locked owners have lost their files as idle, and may stay stopped. */
export async function restOwners(sql: Sql, ownerIds: readonly string[]): Promise<void> {
  if (ownerIds.length > 0) await sql.query(rest, [textArray(ownerIds)]);
}

const restart = prepared(`
update file_owners set idle_at = to_timestamp($2::float8 / 1000.0) + interval '${idleMs} ms',
  check_at = least(check_at, to_timestamp($2::float8 / 1000.0) + interval '${idleMs} ms')
where owner_id = $1::text and stopped_at is not null`);

/** Restarts the idle period of a locked, stopped owner that received a file without requesting it now. */
export async function restartIdle(sql: Sql, ownerId: string, nowMs: number): Promise<void> {
  await sql.query(restart, [ownerId, nowMs]);
}
