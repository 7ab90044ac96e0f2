import { raw } from '@mikro-orm/core';
import { sql as fragment } from 'kysely';
import type { EntitySql, TransactionSql } from '../../connection/sql.ts';
import { PruneWalk } from '../../schema/server-entities.ts';
import { select } from '../../schema/tables.ts';

/**
 * The common part of the sweeps: each has a row of `prune_walks` with its progress, which one server at a
 * time holds.
 */

export type SweptTable = 'lanes' | 'requirement_paths';

/** Number of rows that one slice checks. */
export const sweepSlice = 2_000;

export interface SweptSlice {
  /** All rows have been checked. */
  isOver: boolean;
  removed: number;
}

/** A time before any other, for walks that may begin at once. */
const longAgo = new Date(0);

/** Takes the walk until the transaction ends. Returns undefined if it rests or another server has it. */
export async function takeWalk(
  sql: TransactionSql,
  walk: SweptTable,
): Promise<{ mark: string | null } | undefined> {
  const first = { walk, mark: null, rests_until: longAgo };
  await sql.em().qb(PruneWalk).insert(first).onConflict('walk').ignore().execute();
  const [row] = await select(sql, (tables) =>
    tables
      .selectFrom('prune_walks')
      .select('mark')
      .where('walk', '=', walk)
      .where('rests_until', '<=', fragment<Date>`clock_timestamp()`)
      .forUpdate()
      .skipLocked(),
  );
  return row;
}

/** Moves the mark of a walk that was taken. Without a mark the walk has ended, and rests. */
export async function moveWalk(
  sql: TransactionSql,
  walk: SweptTable,
  mark: string | null,
  restMs: number,
): Promise<void> {
  const rested = { mark, rests_until: raw("clock_timestamp() + ?::float8 * interval '1 ms'", [restMs]) };
  await sql.em().nativeUpdate(PruneWalk, { walk }, mark === null ? rested : { mark });
}

/** Lets the next walks begin at once. */
export async function rouseSweeps(sql: EntitySql): Promise<void> {
  const walks: SweptTable[] = ['lanes', 'requirement_paths'];
  await sql.em().nativeUpdate(PruneWalk, { walk: { $in: walks } }, { rests_until: longAgo });
}

/** Whether there are more rows than `than`. Reads only one more. */
export async function hasMore(sql: EntitySql, table: SweptTable, than: number): Promise<boolean> {
  const [row] = await select(sql, (tables) =>
    tables
      .selectFrom(
        tables
          .selectFrom(table)
          .select(fragment<number>`1`.as('one'))
          .limit(than + 1)
          .as('counted'),
      )
      .select(({ fn }) => fn.countAll<string>().as('rows')),
  );
  return Number(row?.rows ?? 0) > than;
}
