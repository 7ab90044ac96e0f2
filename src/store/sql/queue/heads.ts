import { priorities } from '../../../domain/jobs/job.ts';
import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { ClaimFilter } from '../../../domain/queue/claim-filter.ts';
import { lateralByKey } from '../../connection/sql.ts';
import { type Param, preparedStatement, type Statement } from '../../connection/statement.ts';
import { digitArray, textArray } from '../array-params.ts';
import { isReadyInCrowd, keysOf, nameKeysOf, rootsOf } from './crowds.ts';

/** The lane or crowd of a job that was taken. */
export interface TakenFrom {
  lane_id: number;
  crowd: string | null;
}

/** Low-water marks: positions in lanes and crowds before which no job waits. */
export interface HeadMarks {
  /** The lanes and crowds with their positions by priority; null if all are read from the front. */
  readonly json: string | null;
  /** Reports the lanes and crowds of jobs that were taken. */
  advance(taken: readonly TakenFrom[]): void;
}

/** Reads all lanes from the front. */
export const noMarks: HeadMarks = { json: null, advance() {} };

const fits = '(@maxCostUnits::int is null or cost_units <= @maxCostUnits)';

/** Whether a lane is suitable. */
const suits = `(@addonId::text is null or addon_id = @addonId)
    and (@jobTypes::text[] is null or job_type = any (@jobTypes))
    and requires <@ @available::text[]
    and not heavy && @refused::text[]
    and (@withUnique::boolean or not is_unique)
    and (@addonScope::text[] is null or addon_id like any (@addonScope))
    and (@typeScope::text[] is null or job_type like any (@typeScope))
    and (@fullAddons::text[] is null or addon_id <> all (@fullAddons))`;

/** Where jobs are found in the order of the queue: in an own lane, or through a key of their crowd. */
interface Source {
  /** The part of the statement with the lanes or the keys. */
  from: string;
  /** The condition that finds the jobs. */
  found: string;
  /** Whether their lanes are unique. */
  isUnique: string;
  /** The condition that finds their mark. */
  mark: string;
  /** Further parts to join a job with. */
  joined: string;
}

const ownLanes: Source = {
  from: 'lane source',
  found: `live_jobs.lane_id = source.lane_id and state = ${stateNumber('QUEUED')} and check_at is null`,
  isUnique: 'source.is_unique',
  mark: 'mark.lane_id = source.lane_id',
  joined: '',
};

// Keys are digests, so the lane of each job is checked, one by one, in the order of the queue, until there
// are enough.
const crowdsBy = (column: CrowdColumn): Source => ({
  from: 'crowd source',
  found: `live_jobs.${column} = source.key and ${isReadyInCrowd}`,
  isUnique: 'found_lane.is_unique',
  mark: 'mark.crowd = source.path_id',
  joined: `cross join lateral (
        select is_unique from lanes
        where lanes.lane_id = live_jobs.lane_id
          and stream = (@streams::text[])[source.turn]
          and ${suits}
        offset 0
      ) found_lane`,
});

const fromTheFront = ({ from, found, isUnique, joined }: Source): string => `
    select head.job_id, source.turn, head.priority, head.seq, head.is_unique
    from ${from}
    cross join lateral (
      select job_id, live_jobs.priority, seq, ${isUnique} as is_unique
      from live_jobs ${joined}
      where ${found} and ${fits}
      order by live_jobs.priority, seq
      limit @readMax::int
    ) head`;

// Each priority has a mark of its own, and is read separately: one range of the index each.
const fromMarks = ({ from, found, isUnique, mark, joined }: Source): string => `
    select head.job_id, source.turn, head.priority, head.seq, head.is_unique
    from ${from}
    left join jsonb_to_recordset(@marks::jsonb) as mark (lane_id int, crowd bigint, from_seq bigint[])
      on ${mark}
    cross join lateral (
      select one.*
      from generate_series(0, ${priorities.length - 1}) as level
      cross join lateral (
        select job_id, live_jobs.priority, seq, ${isUnique} as is_unique
        from live_jobs ${joined}
        where ${found} and ${fits}
          and live_jobs.priority = level::smallint
          and seq >= coalesce(mark.from_seq[level + 1], 0)
        order by seq
        limit @readMax::int
      ) one
      order by priority, seq
      limit @readMax::int
    ) head`;

/**
 * The elements of an array, for which the planner estimates one row instead of ten. Multiplied with each
 * other, tens would make it expect thousands of crowds.
 */
const few = (array: string, name: string): string =>
  `(select ${name} from unnest(${array}::bigint[]) as ${name} where ${name} between ${name} and ${name})`;

type CrowdColumn = 'crowd' | 'crowd_type' | 'crowd_addon' | 'crowd_both';

/**
 * Reads the heads of suitable own lanes and crowds in order and merges them, one stream after the other. The
 * first of them are locked, and rows locked by another server are skipped. More heads are read than are
 * wanted, as replacements for rows that are taken. The number of rows read is independent of the number of
 * lanes: own lanes are few, and a crowd is read from the front of one index; see `crowds.ts`.
 *
 * Rows are locked by key, and only then is it checked whether they are still queued: with both conditions at
 * once, the planner may choose the index of queued rows instead of the key, and scan all of it for each row.
 *
 * The parameters are `headNames`. With `isMarked`, `@marks` is one more, and lanes and crowds are read from
 * their low-water marks on.
 */
const lockedHeads = (column: CrowdColumn, isMarked: boolean) => {
  const heads = isMarked ? fromMarks : fromTheFront;
  return `
recursive lane as materialized (
  select lane_id, is_unique, array_position(@streams::text[], stream) as turn
  from lanes
  where own_stream = any (@streams) and ${suits}
), reached (path_id, turn) as (
  select root, ((n + 1) / 2)::int
  from unnest(@crowdRoots::bigint[]) with ordinality as roots (root, n)
  where @withUnique::boolean or n % 2 = 1
  union all
  select step.path_id, reached.turn
  from reached
  cross join ${few('@nameKeys', 'name_key')} available
  cross join lateral (
    select path.path_id
    from requirement_paths path
    where path.parent_id = reached.path_id and path.name_key = available.name_key
    offset 0
  ) step
), crowd as materialized (
  select path_id, turn, path_id # part.key as key
  from reached
  cross join ${few('@keyParts', 'key')} part
), head as materialized (
  select * from (${heads(ownLanes)}
    union all ${heads(crowdsBy(column))}
  ) heads
  order by turn, priority, seq
  limit @readMax::int
), locked as materialized (
  select live.job_id, head.turn, live.priority, live.seq, live.bytes, live.cost_units, head.is_unique,
    live.state = ${stateNumber('QUEUED')} and live.check_at is null as free
  from (select * from head order by turn, priority, seq) head
  cross join ${lateralByKey('live_jobs', 'job_id', 'head.job_id', 'for update skip locked')} live
  limit @lockMax::int
)`;
};

/** The parameters of `lockedHeads`. */
const headNames = [
  // The filter.
  'addonId',
  'jobTypes',
  'available',
  'refused',
  'maxCostUnits',
  // The number of rows to lock, and the number of heads to read.
  'lockMax',
  'readMax',
  // Whether lanes of unique jobs are included.
  'withUnique',
  // The empty one stands for jobs without a stream.
  'streams',
  // The patterns of a credential that reaches only some submitters or types.
  'addonScope',
  'typeScope',
  // Submitters that are left out.
  'fullAddons',
  // The roots of the streams' crowds, the names that a worker has, and the values that turn the end of a path
  // into a key.
  'crowdRoots',
  'nameKeys',
  'keyParts',
] as const;

type HeadName = (typeof headNames)[number];

/**
 * A statement that begins by locking heads of the queue as `locked`; the filter decides which key finds
 * crowds. A second form of it reads lanes and crowds from their marks on. `names` are its own parameters.
 */
export function onHeads<const Name extends string>(
  names: readonly Name[],
  make: (lockedHeads: string) => string,
): (filter: ClaimFilter, marks: string | null) => Statement<HeadName | Name | 'marks'> {
  const one = (column: CrowdColumn, isMarked: boolean) => {
    const all = [...headNames, ...names, ...(isMarked ? ['marks' as const] : [])];
    return preparedStatement<HeadName | Name | 'marks'>(all, make(lockedHeads(column, isMarked)));
  };
  const every = (isMarked: boolean) => ({
    crowd: one('crowd', isMarked),
    crowd_type: one('crowd_type', isMarked),
    crowd_addon: one('crowd_addon', isMarked),
    crowd_both: one('crowd_both', isMarked),
  });
  const fromFront = every(false);
  const marked = every(true);
  return (filter, marks) => (marks === null ? fromFront : marked)[columnFor(filter)];
}

function columnFor({ addonId, jobTypes }: ClaimFilter): CrowdColumn {
  if (addonId !== null) return jobTypes === null ? 'crowd_addon' : 'crowd_both';
  return jobTypes === null ? 'crowd' : 'crowd_type';
}

type HeadParams = Readonly<Record<HeadName, Param>>;

/** The values of `headNames`. */
export function headParams(
  filter: ClaimFilter,
  lockMax: number,
  readMax: number,
  withUnique = true,
): HeadParams {
  const streams = [...new Set(filter.streams ?? [''])];
  const { crowdRoots, nameKeys, keyParts } = crowdParams(filter, streams);
  return {
    addonId: filter.addonId,
    jobTypes: filter.jobTypes === null ? null : textArray(filter.jobTypes),
    available: textArray(filter.available),
    refused: textArray(filter.refused),
    maxCostUnits: filter.maxCostUnits,
    lockMax,
    readMax,
    withUnique,
    streams: textArray(streams),
    addonScope: scopeArray(filter.scope?.addonIds),
    typeScope: scopeArray(filter.scope?.jobTypes),
    fullAddons: scopeArray(filter.fullAddons),
    crowdRoots,
    nameKeys,
    keyParts,
  };
}

const scopeArray = (patterns: readonly string[] | null | undefined): Param =>
  patterns == null ? null : textArray(patterns);

type CrowdParams = Pick<HeadParams, 'crowdRoots' | 'nameKeys' | 'keyParts'>;

/** Digests in the parameters of crowds, which are the same for all calls with one filter. */
const digests = new WeakMap<ClaimFilter, CrowdParams>();

function crowdParams(filter: ClaimFilter, streams: readonly string[]): CrowdParams {
  const known = digests.get(filter);
  if (known) return known;
  const params = {
    crowdRoots: digitArray(rootsOf(streams)),
    nameKeys: digitArray(nameKeysOf([...new Set(filter.available)])),
    keyParts: digitArray(keysOf(filter.addonId, filter.jobTypes)),
  };
  digests.set(filter, params);
  return params;
}

/** Number of additional heads to read, because other servers are about to take some rows. */
export const spareHeads = 32;

/** Counts of one read of the heads. */
export interface HeadCounts {
  /** Heads that were read. */
  heads: number;
  locked: number;
  /** Number of locked rows that were still queued. */
  free: number;
}

export const headCounts = `(
  select (select count(*)::int from head) as heads, count(*)::int as locked,
    count(*) filter (where free)::int as free
  from locked
) counts`;

/** How the heads are read: from which marks on, and how many beyond the wanted number. */
export interface ScanWindow {
  marks: string | null;
  spare: number;
}

/** The window that contains both. */
export const widerWindow = (a: ScanWindow | undefined, b: ScanWindow | undefined): ScanWindow | undefined =>
  a && b ? { marks: a.marks === null ? null : b.marks, spare: Math.max(a.spare, b.spare) } : (a ?? b);

export const firstWindow = ({ json: marks }: HeadMarks): ScanWindow => ({ marks, spare: spareHeads });

/**
 * The window of the next read, or undefined if another read is useless. If a read from the marks finds too
 * few jobs, the next one reads from the front.
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
 * Number of spare heads for the next read, or undefined if another read is useless: the queue was read to its
 * end and every locked row was still queued, so other transactions hold whatever remains.
 *
 * Reading further helps only if other transactions hold the rows that were read. A transaction that was
 * merely slower repeats the same read: the longer a read takes, the more outdated its heads are when their
 * rows are locked.
 */
function nextSpare({ heads, locked, free }: HeadCounts, wanted: number, spare: number): number | undefined {
  const wasRead = wanted + spare;
  if (heads < wasRead && free === locked) return undefined;
  return locked < wanted && heads === wasRead ? spare * 4 : spare;
}
