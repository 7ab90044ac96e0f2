import type { Holder } from '../../../domain/access/holder.ts';
import type { OwnerProfile } from '../../../domain/files/file-lease.ts';
import { idleMs, type Owner, ownerStateNumber, ownerTtlMs } from '../../../domain/files/file-owners.ts';
import { keyEquals, type Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { booleanArray, numberArray, textArray } from '../array-params.ts';
import { type OwnerRecord, ownerColumns, toOwner } from './owners.ts';

const alive = ownerStateNumber('ALIVE');

/** The activity of a locked owner: it works, or it has stopped. */
export interface OwnerTouch {
  ownerId: string;
  kind: 'active' | 'stopped';
  /** A new life begins. */
  born: boolean;
  /** The credential that begins it. */
  holder?: Holder;
  /** Its reported profile; null fields stay as they were. */
  profile?: OwnerProfile;
}

/** The update, for a statement that has a `clock`; its parameters are `touchNames`. */
export const touching = `
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
  holder = case when born then touched.holder else owner.holder end,
  ended_at = null, has_losses = owner.has_losses and not born,
  agent = coalesce(touched.agent, owner.agent), host = coalesce(touched.host, owner.host),
  pid = coalesce(touched.pid, owner.pid), branch = coalesce(touched.branch, owner.branch),
  parent_owner_id = coalesce(touched.parent_owner_id, owner.parent_owner_id)
from clock, unnest(@touchedIds::text[], @stops::boolean[], @born::boolean[], @holders::int[], @agents::text[],
  @hosts::text[], @pids::int[], @branches::text[], @parentIds::text[])
  as touched (owner_id, stops, born, holder, agent, host, pid, branch, parent_owner_id)
where ${keyEquals('owner.owner_id', 'touched.owner_id')}`;

export const touchNames = [
  'touchedIds',
  'stops',
  'born',
  'holders',
  'agents',
  'hosts',
  'pids',
  'branches',
  'parentIds',
] as const;

export const touchParams = (touches: readonly OwnerTouch[]): Record<(typeof touchNames)[number], string> => ({
  touchedIds: textArray(touches.map(({ ownerId }) => ownerId)),
  stops: booleanArray(touches.map(({ kind }) => kind === 'stopped')),
  born: booleanArray(touches.map(({ born }) => born)),
  holders: numberArray(touches.map(({ holder }) => holder ?? null)),
  agents: textArray(touches.map(({ profile }) => profile?.agent ?? null)),
  hosts: textArray(touches.map(({ profile }) => profile?.host ?? null)),
  pids: numberArray(touches.map(({ profile }) => profile?.pid ?? null)),
  branches: textArray(touches.map(({ profile }) => profile?.branch ?? null)),
  parentIds: textArray(touches.map(({ profile }) => profile?.parentOwnerId ?? null)),
});

const touch = preparedStatement(
  ['nowMs', ...touchNames],
  `
with clock as materialized (select to_timestamp(@nowMs::float8 / 1000.0) as now)
${touching}
returning ${ownerColumns('owner')}`,
);

/** Writes the activity of locked owners, and returns their new state. */
export async function touchOwners(
  sql: Sql,
  touches: readonly OwnerTouch[],
  nowMs: number,
): Promise<Map<string, Owner>> {
  if (touches.length === 0) return new Map();
  const rows = await touch.query<OwnerRecord>(sql, { nowMs, ...touchParams(touches) });
  return new Map(rows.map((row) => [row.owner_id, toOwner(row)]));
}
