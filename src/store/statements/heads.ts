import { priorities } from '../../domain/job.ts';
import { stateNumber } from '../../domain/machine.ts';
import { rowOf } from '../sql.ts';
import { textArray } from './arrays.ts';

/** Which jobs suit. Calls with the same filter are served by one statement. */
export interface ClaimFilter {
  /** Jobs of these streams, the first before the second; null for jobs without one. */
  streams: readonly string[] | null;
  addonId: string | null;
  jobTypes: readonly string[] | null;
  maxCostUnits: number | null;
  available: readonly string[];
  refused: readonly string[];
}

/** What is known of the places in their lanes before which nobody waits. */
export interface HeadPlaces {
  /** The lanes with their places by priority; null where all are read from the front. */
  readonly json: string | null;
  /** Something was taken from these lanes. */
  note(laneIds: Iterable<number>): void;
}

/** All lanes are read from the front. */
export const noPlaces: HeadPlaces = { json: null, note() {} };

const waits = `live_jobs.lane_id = lane.lane_id and state = ${stateNumber('QUEUED')} and check_at is null
      and ($5::int is null or cost_units <= $5)`;

const fromTheFront = `cross join lateral (
    select job_id, priority, seq from live_jobs where ${waits}
    order by priority, seq
    limit $7::int
  ) head`;

// Each priority has a mark of its own, and is read by itself: of one index, one part each.
const fromMarks = (marks: string): string => `
  left join jsonb_to_recordset(${marks}::jsonb) as mark (lane_id int, from_seq bigint[]) on mark.lane_id = lane.lane_id
  cross join lateral (
    select one.* from generate_series(0, ${priorities.length - 1}) as level cross join lateral (
      select job_id, live_jobs.priority, seq from live_jobs
      where ${waits} and live_jobs.priority = level::smallint and seq >= coalesce(mark.from_seq[level + 1], 0)
      order by seq
      limit $7::int
    ) one
    order by priority, seq
    limit $7::int
  ) head`;

/**
 * The heads of the suitable lanes are read in order and merged, one stream after the other; of these the first are locked, and
 * rows that another server holds are passed over. More heads are read of each lane than are wanted, so that there are
 * others where some are taken.
 *
 * Rows are locked by key, and only then is it seen whether they are queued still: asked for both at once, the planner
 * may take the index of queued rows for the shorter way to a key, and walk all of it for each.
 *
 * The parameters: $1 to $5 are the filter's, $6 is how many to lock, $7 how many heads to read, $8 whether lanes of
 * unique jobs are among them, $9 are the streams, of which the empty one stands for none. `marks` is one more where
 * lanes are to be read from a mark on.
 */
const lockedHeads = (lanes: string, marks?: string) => `
recursive ${lanes}, lane as materialized (
  select lane_id, is_unique, array_position($9::text[], stream) as turn from candidate
  where stream = any ($9) and ($1::text is null or addon_id = $1) and ($2::text[] is null or job_type = any ($2))
    and requires <@ $3::text[] and not heavy && $4::text[] and ($8::boolean or not is_unique)
), head as materialized (
  select head.job_id, lane.turn, head.priority, head.seq, lane.is_unique
  from lane ${marks === undefined ? fromTheFront : fromMarks(marks)}
  order by turn, priority, seq
  limit $7::int
), locked as materialized (
  select live.job_id, head.turn, live.priority, live.seq, live.bytes, live.cost_units, head.is_unique,
    live.state = ${stateNumber('QUEUED')} and live.check_at is null as free
  from (select * from head order by turn, priority, seq) head
  cross join ${rowOf('live_jobs', 'job_id', 'head.job_id', 'for update skip locked')} live
  limit $6::int
)`;

/** The lanes of some types or of some streams are found by name. */
const named = 'candidate as (select * from lanes)';

/** Those of a submitter are, too; a plan that is made for all values would not know that there is one. */
const submitted = 'candidate as (select * from lanes where addon_id = $1)';

/**
 * Whoever takes anything must not look into every lane there ever was: the lanes that have something in them are found by
 * leaping through the queue's index from one to the next.
 */
const present = `present (lane_id) as (
  (select lane_id from live_jobs where state = ${stateNumber('QUEUED')} and check_at is null order by lane_id limit 1)
  union all
  select (select live_jobs.lane_id from live_jobs
    where state = ${stateNumber('QUEUED')} and check_at is null and live_jobs.lane_id > present.lane_id
    order by live_jobs.lane_id limit 1)
  from present where present.lane_id is not null
), candidate as (
  select lanes.* from present cross join ${rowOf('lanes', 'lane_id', 'present.lane_id')} lanes
)`;

/** From so many lanes on that would have to be looked into it is worth leaping, up to so many times. */
const lanesMany = 500;
const leapsMax = 50;

/** The stream's first lane that is not before the next one after `lane_id` that has something in it. */
const nextOf = (lane_id: string): string => `(
  select lanes.lane_id from lanes where lanes.stream = ($9::text[])[1] and lanes.lane_id >= (
    select live_jobs.lane_id from live_jobs
    where state = ${stateNumber('QUEUED')} and check_at is null and live_jobs.lane_id > ${lane_id}
    order by live_jobs.lane_id limit 1
  ) order by lanes.lane_id limit 1
)`;

/**
 * One stream may have thousands of lanes, one for each submitter, and most of them empty; or thousands of lanes may have
 * something in them, and few of those be this stream's. Leaping from a lane with something in it to the stream's next,
 * and on to the next with something in it, takes no more leaps than there are of either. Where that is too many after
 * all, the stream's lanes are found by name. What was leapt to is looked up by key (`offset 0`): left to itself, the planner
 * may read all lanes of the stream and compare.
 */
const leaping = `leap (lane_id, n) as (
  select ${nextOf('0')}, 1
  union all
  select ${nextOf('leap.lane_id')}, n + 1 from leap where lane_id is not null and n < ${leapsMax}
), whole as materialized (
  select exists (select from leap where lane_id is null) as known
), candidate as (
  select found.* from leap cross join lateral (
    select * from lanes where lanes.lane_id = leap.lane_id offset 0
  ) found where (select known from whole)
  union all
  select * from lanes where not (select known from whole)
)`;

/**
 * Streams that were seen to have many lanes. Lanes stay for ever, so these do as well; and for any other stream leaping
 * would be right, only not quicker.
 */
const wide = new Set<string>();
const wideMax = 10_000;

/** Remembers how many lanes had to be looked into, where they were found by name. */
export function noteLanes({ streams }: ClaimFilter, lanes: number): void {
  const [stream] = streams ?? [];
  if (stream === undefined || streams?.length !== 1 || lanes < lanesMany) return;
  if (wide.size >= wideMax) wide.clear();
  wide.add(stream);
}

/**
 * A statement that begins by locking heads of the queue as `locked`; which way they are found depends on the filter. With a
 * parameter for `marks` there is another one that reads lanes from their marks on.
 */
export function onHeads(
  make: (lockedHeads: string) => string,
  marks?: string,
): (filter: ClaimFilter, isMarked?: boolean) => string {
  const texts = (param?: string) => ({
    byName: make(lockedHeads(named, param)),
    bySubmitter: make(lockedHeads(submitted, param)),
    byPresence: make(lockedHeads(present, param)),
    byLeaping: make(lockedHeads(leaping, param)),
  });
  const plain = texts();
  const marked = marks === undefined ? plain : texts(marks);
  return ({ addonId, jobTypes, streams }, isMarked = false) => {
    const { byName, bySubmitter, byPresence, byLeaping } = isMarked ? marked : plain;
    if (addonId !== null) return bySubmitter;
    if (jobTypes !== null) return byName;
    if (streams === null) return byPresence;
    return streams.length === 1 && wide.has(streams[0] as string) ? byLeaping : byName;
  };
}

/** The parameters of `onHeads` statements. */
export const headParams = (
  filter: ClaimFilter,
  lockMax: number,
  readMax: number,
  unique = true,
): unknown[] => [
  filter.addonId,
  filter.jobTypes === null ? null : textArray(filter.jobTypes),
  textArray(filter.available),
  textArray(filter.refused),
  filter.maxCostUnits,
  lockMax,
  readMax,
  unique,
  textArray(filter.streams ?? ['']),
];

/** How many more heads are read than are wanted: rows that other servers are about to take. */
export const spareHeads = 32;

/** What a look at the heads has found. */
export interface HeadCounts {
  /** Lanes that were looked into. */
  lanes: number;
  /** Heads that were read. */
  heads: number;
  locked: number;
  /** Of the locked ones, those that were still queued. */
  free: number;
}

export const headCounts = `(
  select (select count(*)::int from lane) as lanes, (select count(*)::int from head) as heads, count(*)::int as locked,
    count(*) filter (where free)::int as free
  from locked
) counts`;

/** How the heads are read: from where on, and how many more than are wanted. */
export interface Look {
  marks: string | null;
  spare: number;
}

export const firstLook = ({ json: marks }: HeadPlaces): Look => ({ marks, spare: spareHeads });

/**
 * How to look the next time round, or nothing where there is no use in looking again. Whoever finds too little behind the
 * marks looks once more from the front.
 */
export function nextLook(
  counts: Omit<HeadCounts, 'lanes'>,
  wanted: number,
  { marks, spare }: Look,
): Look | undefined {
  const next = nextSpare(counts, wanted, spare);
  if (next !== undefined) return { marks, spare: next };
  return marks === null ? undefined : firstLook(noPlaces);
}

/**
 * How many spare heads to read the next time round, or nothing where there is no use in looking again: the queue was
 * read to its end, and nobody was quicker at any of it, so that whatever else there is, others hold.
 *
 * Reading further helps only where others hold what was read. Who was merely slower tries again just as it did: the
 * longer the reading takes, the staler its head has become by the time its rows are locked.
 */
function nextSpare(
  { heads, locked, free }: Omit<HeadCounts, 'lanes'>,
  wanted: number,
  spare: number,
): number | undefined {
  const wasRead = wanted + spare;
  if (heads < wasRead && free === locked) return undefined;
  return locked < wanted && heads === wasRead ? spare * 4 : spare;
}
