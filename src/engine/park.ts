import type { Sql } from '../store/sql.ts';
import { lockCandidates, parkJobs } from '../store/statements/candidates.ts';
import { shareCapacity } from '../store/statements/capacity.ts';
import { noPlaces } from '../store/statements/heads.ts';
import type { Parking } from './give.ts';
import { tooLarge } from './judge.ts';

/** Jobs that are put aside in one transaction. */
const parkMax = 200;

/** Puts jobs aside that cost more than all there is, the first in line first, so that nobody has to look at them again. */
export async function parkTooLarge(
  sql: Sql,
  { filter, unique }: Parking,
  totalUnlessSet: number,
): Promise<void> {
  const candidates = await lockCandidates(sql, filter, { count: parkMax, unique, places: noPlaces });
  const { total } = await shareCapacity(sql, totalUnlessSet);
  await parkJobs(sql, tooLarge(candidates, total), total);
}
