import type { Holder } from '../../../domain/access/holder.ts';
import type { OwnerProfile } from '../../../domain/files/file-lease.ts';
import { idleMs, type Owner, ownerStateNumber, ownerStates } from '../../../domain/files/file-owners.ts';
import { keyEquals, lateralByKey, type Sql, timeMs } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { numberArray, textArray } from '../array-params.ts';
import { isAwake } from '../outages.ts';

/**
 * Owners of file leases. All transactions lock in one order: owners by their ids, then files by their ids.
 * Contentions, losses and held files belong to their owner and change only under its lock. While a
 * transaction has locked an owner, no other one grants it a file or takes one from it.
 */

/** An owner's columns, under the names that they have in the record. */
export interface OwnerRecord {
  owner_id: string;
  holder: Holder;
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
    'holder',
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
  holder: record.holder,
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
const add = preparedStatement(
  ['ownerIds'],
  `
insert into file_owners (owner_id, state, born_at, last_heartbeat_at, last_activity_at, expires_at,
  has_losses)
select owner_id, ${ownerStateNumber('NEW')}, now, now, now, now, false
from unnest(@ownerIds::text[]) as owner_id, (select clock_timestamp() as now) clock
order by owner_id
on conflict (owner_id) do nothing`,
);

/** Inserts rows for owners that have none, so that they can be locked. */
export async function addOwners(sql: Sql, ownerIds: readonly string[], signal?: AbortSignal): Promise<void> {
  await add.query(sql, { ownerIds: textArray(ownerIds) }, signal);
}

const lock = (how: string) =>
  preparedStatement(
    ['ownerIds'],
    `
select ${ownerColumns('owner')}
from (select owner_id from unnest(@ownerIds::text[]) as owner_id order by owner_id) wanted
cross join ${lateralByKey('file_owners', 'owner_id', 'wanted.owner_id', how)} owner`,
  );

const lockAll = lock('for update');
const lockFree = lock('for update skip locked');

/** Locks these owners, each named once. Without `wait`, owners locked by other transactions are left out. */
export async function lockOwners(
  sql: Sql,
  ownerIds: readonly string[],
  { wait, signal }: { wait: boolean; signal?: AbortSignal | undefined },
): Promise<Map<string, Owner>> {
  const rows = await (wait ? lockAll : lockFree).query<OwnerRecord>(
    sql,
    { ownerIds: textArray(ownerIds) },
    signal,
  );
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const due = preparedStatement(
  ['limit'],
  `
with due as materialized (
  (select owner_id from file_owners where check_at <= (select clock_timestamp()) order by check_at
    limit @limit)
  union
  (select owner_id from (
    select owner_id from file_contentions where check_at <= (select clock_timestamp()) order by check_at
      limit @limit
  ) contention)
)
select ${ownerColumns('owner')}
from (select * from due order by owner_id) due
cross join ${lateralByKey('file_owners', 'owner_id', 'due.owner_id', 'for update skip locked')} owner`,
);

/** Locks owners that are due for a check, or whose contentions are. */
export async function lockDueOwners(sql: Sql, limit: number): Promise<Map<string, Owner>> {
  const rows = await due.query<OwnerRecord>(sql, { limit });
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const nextDue = preparedStatement(
  [],
  `
select extract(epoch from least(
  (select check_at from file_owners where check_at is not null order by check_at limit 1),
  (select check_at from file_contentions where check_at is not null order by check_at limit 1)
) - clock_timestamp())::float8 * 1000 as ms`,
);

/** Time until the next owner or contention is due; null if none is pending. */
export async function nextFileDueInMs(sql: Sql): Promise<number | null> {
  const [row] = await nextDue.query<{ ms: number | null }>(sql, {});
  return row?.ms ?? null;
}

const read = preparedStatement(
  ['ownerIds'],
  `
select ${ownerColumns('owner')}
from unnest(@ownerIds::text[]) as wanted (owner_id)
  cross join ${lateralByKey('file_owners', 'owner_id', 'wanted.owner_id')} owner`,
);

/** The current rows of these owners, without locks. */
export async function readOwners(
  sql: Sql,
  ownerIds: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, Owner>> {
  const rows = await read.query<OwnerRecord>(sql, { ownerIds: textArray(ownerIds) }, signal);
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

const clock = preparedStatement(
  [],
  `
select now::text, ${isAwake('now')} as awake
from (select date_trunc('milliseconds', clock_timestamp()) as now) clock`,
);

export async function readClock(sql: Sql): Promise<Clock> {
  const [row] = await clock.query<{ now: string; awake: boolean }>(sql, {});
  if (!row) throw new Error('the database did not tell the time');
  return { nowMs: timeMs(row.now), awake: row.awake };
}

const end = preparedStatement(
  ['nowMs', 'ownerIds', 'states'],
  `
with ended as (
  update file_owners owner set state = ending.state, ended_at = to_timestamp(@nowMs::float8 / 1000.0),
    stopped_at = null,
    idle_at = null, check_at = null, has_losses = false
  from unnest(@ownerIds::text[], @states::smallint[]) as ending (owner_id, state)
  where ${keyEquals('owner.owner_id', 'ending.owner_id')}
  returning ${ownerColumns('owner')}
), deleted_losses as (
  delete from file_losses loss using ended where ${keyEquals('loss.owner_id', 'ended.owner_id')}
)
select * from ended`,
);

/** Ends the lives of locked owners. */
export async function endOwners(
  sql: Sql,
  endings: readonly { ownerId: string; state: 'ENDED' | 'DEAD' }[],
  nowMs: number,
): Promise<Map<string, Owner>> {
  if (endings.length === 0) return new Map();
  const rows = await end.query<OwnerRecord>(sql, {
    nowMs,
    ownerIds: textArray(endings.map(({ ownerId }) => ownerId)),
    states: numberArray(endings.map(({ state }) => ownerStateNumber(state))),
  });
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}

const rearm = preparedStatement(
  ['ownerIds'],
  `
update file_owners owner set check_at = least(owner.expires_at, owner.idle_at)
from unnest(@ownerIds::text[]) as wanted (owner_id)
where ${keyEquals('owner.owner_id', 'wanted.owner_id')} and owner.check_at is distinct
  from least(owner.expires_at, owner.idle_at)`,
);

/** Makes the reaper check these locked, live owners when they may have died or become idle. */
export async function rearmOwners(sql: Sql, ownerIds: readonly string[]): Promise<void> {
  if (ownerIds.length > 0) await rearm.query(sql, { ownerIds: textArray(ownerIds) });
}

const rest = preparedStatement(
  ['ownerIds'],
  `update file_owners set idle_at = null, check_at = expires_at where owner_id = any (@ownerIds::text[])`,
);

/** These locked owners have lost their files as idle, and may stay stopped. */
export async function restOwners(sql: Sql, ownerIds: readonly string[]): Promise<void> {
  if (ownerIds.length > 0) await rest.query(sql, { ownerIds: textArray(ownerIds) });
}

const restart = preparedStatement(
  ['ownerId', 'nowMs'],
  `
update file_owners set idle_at = to_timestamp(@nowMs::float8 / 1000.0) + interval '${idleMs} ms',
  check_at = least(check_at, to_timestamp(@nowMs::float8 / 1000.0) + interval '${idleMs} ms')
where owner_id = @ownerId::text and stopped_at is not null`,
);

/** Restarts the idle period of a locked, stopped owner that received a file without requesting it now. */
export async function restartIdle(sql: Sql, ownerId: string, nowMs: number): Promise<void> {
  await restart.query(sql, { ownerId, nowMs });
}
