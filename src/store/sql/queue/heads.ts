import { priorities } from '../../../domain/jobs/job.ts';
import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { ClaimFilter } from '../../../domain/queue/claim-filter.ts';
import { lateralByKey } from '../../connection/sql.ts';
import { digitArray, textArray } from '../array-params.ts';
import { isReadyInCrowd, keysOf, nameKeysOf, rootsOf } from './crowds.ts';

/** Where in its lane or crowd a job was that was taken. */
export interface TakenFrom {
  lane_id: number;
  crowd: string | null;
}

/** What is known of the places in lanes and crowds before which no job waits. */
export interface HeadMarks {
  /** The lanes and crowds with their places by priority; null where all are read from the front. */
  readonly json: string | null;
  /** Jobs were taken from these. */
  advance(taken: readonly TakenFrom[]): void;
}

/** All lanes are read from the front. */
export const noMarks: HeadMarks = { json: null, advance() {} };

const fits = '($5::int is null or cost_units <= $5)';

/** Whether a lane suits; the parameters are those of `lockedHeads`. */
const suits = `($1::text is null or addon_id = $1) and ($2::text[] is null or job_type = any ($2))
    and requires <@ $3::text[] and not heavy && $4::text[] and ($8::boolean or not is_unique)`;

/** Where jobs are found in the order of the queue: in a lane of its own, or through a key of their crowd. */
interface Source {
  /** The part of the statement with the lanes or the keys. */
  from: string;
  /** What finds the jobs. */
  found: string;
  /** Whether their lanes are unique. */
  isUnique: string;
  /** What a mark is known by. */
  mark: string;
  /** Further parts that a job has to be joined with. */
  joined: string;
}

const ownLanes: Source = {
  from: 'lane source',
  found: `live_jobs.lane_id = source.lane_id and state = ${stateNumber('QUEUED')} and check_at is null`,
  isUnique: 'source.is_unique',
  mark: 'mark.lane_id = source.lane_id',
  joined: '',
};

// Keys are digests: the lane of each job is looked at, one by one, in the order of the queue, until there are enough.
const crowdsBy = (column: CrowdColumn): Source => ({
  from: 'crowd source',
  found: `live_jobs.${column} = source.key and ${isReadyInCrowd}`,
  isUnique: 'found_lane.is_unique',
  mark: 'mark.crowd = source.path_id',
  joined: `cross join lateral (
        select is_unique from lanes
        where lanes.lane_id = live_jobs.lane_id and stream = ($9::text[])[source.turn] and ${suits} offset 0
      ) found_lane`,
});

const fromTheFront = ({ from, found, isUnique, joined }: Source): string => `
    select head.job_id, source.turn, head.priority, head.seq, head.is_unique from ${from} cross join lateral (
      select job_id, live_jobs.priority, seq, ${isUnique} as is_unique from live_jobs ${joined} where ${found} and ${fits}
      order by live_jobs.priority, seq
      limit $7::int
    ) head`;

// Each priority has a mark of its own, and is read by itself: of one index, one part each.
const fromMarks = ({ from, found, isUnique, mark, joined }: Source, marks: string): string => `
    select head.job_id, source.turn, head.priority, head.seq, head.is_unique from ${from}
    left join jsonb_to_recordset(${marks}::jsonb) as mark (lane_id int, crowd bigint, from_seq bigint[]) on ${mark}
    cross join lateral (
      select one.* from generate_series(0, ${priorities.length - 1}) as level cross join lateral (
        select job_id, live_jobs.priority, seq, ${isUnique} as is_unique from live_jobs ${joined}
        where ${found} and ${fits} and live_jobs.priority = level::smallint
          and seq >= coalesce(mark.from_seq[level + 1], 0)
        order by seq
        limit $7::int
      ) one
      order by priority, seq
      limit $7::int
    ) head`;

/**
 * The elements of an array, of which the planner believes that there is one and not ten; multiplied with each other, its tens
 * would make it expect thousands of crowds.
 */
const few = (array: string, name: string): string =>
  `(select ${name} from unnest(${array}::bigint[]) as ${name} where ${name} between ${name} and ${name})`;

type CrowdColumn = 'crowd' | 'crowd_type' | 'crowd_addon' | 'crowd_both';

/**
 * The heads of the suitable own lanes and of the suitable crowds are read in order and merged, one stream after the other; of
 * these the first are locked, and rows that another server holds are passed over. More heads are read of each than are wanted,
 * so that there are others where some are taken. How many rows that touches is independent of how many lanes there are:
 * own lanes are few, and of a crowd one index is read from its front; see `crowds.ts`.
 *
 * Rows are locked by key, and only then is it seen whether they are queued still: asked for both at once, the planner
 * may take the index of queued rows for the shorter way to a key, and walk all of it for each.
 *
 * The parameters: $1 to $5 are the filter's, $6 is how many to lock, $7 how many heads to read, $8 whether lanes of
 * unique jobs are among them, $9 are the streams, of which the empty one stands for none. $10 are the roots of their
 * crowds, $11 the names that a worker has, and $12 what makes a key of the end of a path. `marks` is one more where
 * lanes are to be read from a mark on.
 */
const lockedHeads = (column: CrowdColumn, marks?: string) => {
  const heads = (source: Source) => (marks === undefined ? fromTheFront(source) : fromMarks(source, marks));
  return `
recursive lane as materialized (
  select lane_id, is_unique, array_position($9::text[], stream) as turn from lanes
  where own_stream = any ($9) and ${suits}
), reached (path_id, turn) as (
  select root, ((n + 1) / 2)::int from unnest($10::bigint[]) with ordinality as roots (root, n)
  where $8::boolean or n % 2 = 1
  union all
  select step.path_id, reached.turn from reached cross join ${few('$11', 'name_key')} available
  cross join lateral (
    select path.path_id from requirement_paths path
    where path.parent_id = reached.path_id and path.name_key = available.name_key offset 0
  ) step
), crowd as materialized (
  select path_id, turn, path_id # part.key as key from reached cross join ${few('$12', 'key')} part
), head as materialized (
  select * from (${heads(ownLanes)}
    union all ${heads(crowdsBy(column))}
  ) heads
  order by turn, priority, seq
  limit $7::int
), locked as materialized (
  select live.job_id, head.turn, live.priority, live.seq, live.bytes, live.cost_units, head.is_unique,
    live.state = ${stateNumber('QUEUED')} and live.check_at is null as free
  from (select * from head order by turn, priority, seq) head
  cross join ${lateralByKey('live_jobs', 'job_id', 'head.job_id', 'for update skip locked')} live
  limit $6::int
)`;
};

/**
 * A statement that begins by locking heads of the queue as `locked`; the filter decides by which key crowds are read. With a
 * parameter for `marks` there is another one that reads lanes and crowds from their marks on.
 */
export function onHeads(
  make: (lockedHeads: string) => string,
  marks?: string,
): (filter: ClaimFilter, isMarked?: boolean) => string {
  const texts = (param?: string): Record<CrowdColumn, string> => ({
    crowd: make(lockedHeads('crowd', param)),
    crowd_type: make(lockedHeads('crowd_type', param)),
    crowd_addon: make(lockedHeads('crowd_addon', param)),
    crowd_both: make(lockedHeads('crowd_both', param)),
  });
  const plain = texts();
  const marked = marks === undefined ? plain : texts(marks);
  return (filter, isMarked = false) => (isMarked ? marked : plain)[columnFor(filter)];
}

function columnFor({ addonId, jobTypes }: ClaimFilter): CrowdColumn {
  if (addonId !== null) return jobTypes === null ? 'crowd_addon' : 'crowd_both';
  return jobTypes === null ? 'crowd' : 'crowd_type';
}

/** The parameters of `onHeads` statements. */
export function headParams(filter: ClaimFilter, lockMax: number, readMax: number, unique = true): unknown[] {
  const streams = [...new Set(filter.streams ?? [''])];
  return [
    filter.addonId,
    filter.jobTypes === null ? null : textArray(filter.jobTypes),
    textArray(filter.available),
    textArray(filter.refused),
    filter.maxCostUnits,
    lockMax,
    readMax,
    unique,
    textArray(streams),
    ...crowdParams(filter, streams),
  ];
}

/** Digests of the parameters of crowds, which are the same for all calls with one filter. */
const digests = new WeakMap<ClaimFilter, unknown[]>();

function crowdParams(filter: ClaimFilter, streams: readonly string[]): unknown[] {
  const known = digests.get(filter);
  if (known) return known;
  const params = [
    digitArray(rootsOf(streams)),
    digitArray(nameKeysOf([...new Set(filter.available)])),
    digitArray(keysOf(filter.addonId, filter.jobTypes)),
  ];
  digests.set(filter, params);
  return params;
}

/** How many more heads are read than are wanted: rows that other servers are about to take. */
export const spareHeads = 32;

/** What a look at the heads has found. */
export interface HeadCounts {
  /** Heads that were read. */
  heads: number;
  locked: number;
  /** Of the locked ones, those that were still queued. */
  free: number;
}

export const headCounts = `(
  select (select count(*)::int from head) as heads, count(*)::int as locked,
    count(*) filter (where free)::int as free
  from locked
) counts`;

/** How the heads are read: from where on, and how many more than are wanted. */
export interface ScanWindow {
  marks: string | null;
  spare: number;
}

export const firstWindow = ({ json: marks }: HeadMarks): ScanWindow => ({ marks, spare: spareHeads });

/**
 * How to look the next time round, or nothing where there is no use in looking again. Whoever finds too little behind the
 * marks looks once more from the front.
 */
export function nextWindow(
  counts: HeadCounts,
  wanted: number,
  { marks, spare }: ScanWindow,
): ScanWindow | undefined {
  const next = nextSpare(counts, wanted, spare);
  if (next !== undefined) return { marks, spare: next };
  return marks === null ? undefined : firstWindow(noMarks);
}

/**
 * How many spare heads to read the next time round, or nothing where there is no use in looking again: the queue was
 * read to its end, and nobody was quicker at any of it, so that whatever else there is, others hold.
 *
 * Reading further helps only where others hold what was read. Who was merely slower tries again just as it did: the
 * longer the reading takes, the staler its head has become by the time its rows are locked.
 */
function nextSpare({ heads, locked, free }: HeadCounts, wanted: number, spare: number): number | undefined {
  const wasRead = wanted + spare;
  if (heads < wasRead && free === locked) return undefined;
  return locked < wanted && heads === wasRead ? spare * 4 : spare;
}
