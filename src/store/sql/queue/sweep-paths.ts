/**
 * The removal of idle paths: steps of `requirement_paths` that lead to no crowded lane any more. A claim
 * follows all steps whose names its worker has, so useless steps would slow every claim for good.
 *
 * A step must never be removed while a lane is being created at the end of its path, because no claim would
 * find the jobs of that lane. Three rules guarantee that:
 *
 * - A lane is created first. Then its steps are locked or added (`keepPaths`), before a job is put into it.
 *   If the lane is committed later, the locks are held until then.
 * - The sweep holds a step with `for update`, and skips locked steps. A server that creates a lane meanwhile
 *   waits, and adds the step again if it is removed.
 * - A statement that begins after that lock decides whether a step is idle: no step follows it, and no lane
 *   is at its end.
 *
 * A claim needs no lock. Its snapshot has the steps to every job that it contains.
 *
 * A walk removes the last steps of paths. The steps before them are idle then, and the next walk removes
 * them.
 */

import { keysEqual, type TransactionSql } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { digitArray } from '../array-params.ts';
import { moveWalk, type SweptSlice, sweepSlice, takeWalk } from './sweep-walks.ts';

// Not `exists`: the planner may read a whole table ahead.
const leadsOn = (step: string): string => `coalesce(
    (select true from requirement_paths next_step where next_step.parent_id = ${step}.path_id limit 1),
    (select true from lanes where lanes.crowd = ${step}.path_id limit 1),
    false
  )`;

const lockIdle = statement(
  ['afterParent', 'afterName', 'limit'],
  `
with slice as materialized (
  select parent_id, name_key, path_id from requirement_paths
  where (parent_id, name_key) > (@afterParent::bigint, @afterName::bigint) order by parent_id, name_key
    limit @limit::int
), checked as materialized (
  select parent_id, name_key, ${leadsOn('slice')} as leads_on from slice
)
select checked.parent_id, checked.name_key, step.place is not null as "isLocked"
from checked left join lateral (
  select ctid as place from requirement_paths step
  where step.parent_id = checked.parent_id and step.name_key = checked.name_key and not checked.leads_on
  for update skip locked
) step on true
order by checked.parent_id, checked.name_key`,
);

const remove = statement(
  ['parents', 'names'],
  `
with deleted as (
  delete from requirement_paths step using unnest(@parents::bigint[], @names::bigint[])
    as locked (parent_id, name_key)
  where ${keysEqual('(step.parent_id, step.name_key)', '(locked.parent_id, locked.name_key)')}
    and not ${leadsOn('step')}
  returning 1 as one
)
select count(*)::int as removed from deleted`,
);

/** A position before all steps. */
const begin = `${-(2n ** 63n)} ${-(2n ** 63n)}`;

interface Step {
  parent_id: string;
  name_key: string;
}

/**
 * Checks the next steps and removes idle ones. Returns undefined if the walk rests or another server has it.
 * Must run in a transaction of its own, which holds locks on the steps that it may remove. A walk that ends
 * with a removal does not rest.
 */
export async function sweepPaths(sql: TransactionSql, restMs: number): Promise<SweptSlice | undefined> {
  const walk = await takeWalk(sql, 'requirement_paths');
  if (!walk) return undefined;
  const [afterParent = '', afterName = ''] = (walk.mark ?? begin).split(' ');
  const found = await lockIdle.query<Step & { isLocked: boolean }>(sql, {
    afterParent,
    afterName,
    limit: sweepSlice,
  });
  const removed = await removeIdle(
    sql,
    found.filter(({ isLocked }) => isLocked),
  );
  const last = found.at(-1);
  const isOver = last === undefined || found.length < sweepSlice;
  await moveWalk(
    sql,
    'requirement_paths',
    isOver ? null : `${last.parent_id} ${last.name_key}`,
    removed === 0 ? restMs : 0,
  );
  return { isOver, removed };
}

async function removeIdle(sql: TransactionSql, locked: readonly Step[]): Promise<number> {
  if (locked.length === 0) return 0;
  const [row] = await remove.query<{ removed: number }>(sql, {
    parents: digitArray(locked.map(({ parent_id }) => parent_id)),
    names: digitArray(locked.map(({ name_key }) => name_key)),
  });
  return row?.removed ?? 0;
}
