import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { digitArray, numberArray } from '../array-params.ts';
import { isReadyInCrowd } from './crowds.ts';

/** A lane, or a crowd by its key. */
export type HeadPosition = { laneId: number } | { crowd: string };

/** Where to search for the head of the jobs of one priority in a lane or a crowd. */
export interface Probe {
  spot: HeadPosition;
  priority: number;
  /** The first `seq` of the search. */
  fromSeq: number;
}

export interface ProbedHead {
  /** The `seq` of the first waiting job; null if there is none. */
  seq: number | null;
  /** Time that the search took in the database. */
  tookMs: number;
}

const firstOf = (column: 'lane_id' | 'crowd', isReady: string): string => `
  select seq from live_jobs
  where live_jobs.${column} = probe.${column} and ${isReady}
    and live_jobs.priority = probe.priority and seq >= probe.from_seq
  order by seq limit 1`;

// Uses only the index by key and order, as claims do. The clock is read before and after each search.
const probe = preparedStatement(
  ['laneIds', 'priorities', 'fromSeqs', 'crowds'],
  `
select (select last_value::float8 from job_events_event_id_seq) as last, probe.n::int as n,
  head.seq::float8 as seq,
  extract(epoch from clock_timestamp() - probe.began)::float8 * 1000 as took
from (
  select requested.*, clock_timestamp() as began
  from unnest(@laneIds::int[], @priorities::smallint[], @fromSeqs::bigint[],
    @crowds::bigint[]) with ordinality
    as requested (lane_id, priority, from_seq, crowd, n) offset 0
) probe left join lateral (
  (${firstOf('lane_id', `state = ${stateNumber('QUEUED')} and check_at is null`)})
  union all (${firstOf('crowd', isReadyInCrowd)})
) head on true`,
);

/** The requested heads, in their order, and the last `seq` that was assigned in any lane. */
export async function probeHeads(
  sql: Sql,
  probes: readonly Probe[],
): Promise<{ last: number; heads: ProbedHead[] }> {
  type Row = { last: number; n: number; seq: number | null; took: number };
  const rows = await probe.query<Row>(sql, {
    laneIds: numberArray(probes.map(({ spot }) => ('laneId' in spot ? spot.laneId : null))),
    priorities: numberArray(probes.map(({ priority }) => priority)),
    fromSeqs: numberArray(probes.map(({ fromSeq }) => fromSeq)),
    crowds: digitArray(probes.map(({ spot }) => ('crowd' in spot ? spot.crowd : 'NULL'))),
  });
  const heads = new Array<ProbedHead>(probes.length);
  for (const { n, seq, took } of rows) heads[n - 1] = { seq, tookMs: took };
  return { last: rows[0]?.last ?? 0, heads };
}
