import { createHash } from 'node:crypto';
import { storedNeedsOf } from '../../../domain/jobs/constraints.ts';
import type { JsonObject } from '../../../domain/jobs/job.ts';
import { keyEquals, type Sql } from '../../connection/sql.ts';
import { statement } from '../../connection/statement.ts';
import { booleanArray, digitArray, numberArray, textArray, uuidArray } from '../array-params.ts';
import { crowdKeysOf, ownLanesMax, type PathStep } from './crowds.ts';

/** All properties, except the cost, that decide which worker may have a job. */
export interface Lane {
  stream: string | null;
  addonId: string;
  jobType: string;
  requires: readonly string[];
  heavy: readonly string[];
  /** Its jobs are not for a worker that already holds a lease. */
  unique: boolean;
}

/** All properties of a lane, as one text. */
export const laneText = ({ stream, addonId, jobType, requires, heavy, unique }: Lane): string =>
  // Databases older than unique lanes have keys of this text, so it must not change for common lanes.
  JSON.stringify([stream, addonId, jobType, requires, heavy, ...(unique ? ['unique'] : [])]);

/** A key of fixed length; the columns together would be too long for an index. */
export const laneKey = (lane: Lane): string =>
  createHash('sha256').update(laneText(lane)).digest('base64url');

/** The target of a lane's new jobs. */
export interface LaneTarget {
  laneId: number;
  /** Its jobs have the keys of a crowd; see `crowds.ts`. */
  isCrowded: boolean;
}

// Locks an existing step and leaves it unchanged. If a step is being removed, waits for that and inserts it
// again.
const keepSteps = statement(
  ['paths', 'parents', 'names'],
  `
insert into requirement_paths (path_id, parent_id, name_key)
select path_id, parent_id, name_key from unnest(@paths::bigint[], @parents::bigint[], @names::bigint[])
  as step (path_id, parent_id, name_key)
on conflict (parent_id, name_key) do update set path_id = excluded.path_id where false`,
);

// Counts the own lanes of a stream once for all its new lanes, and no further than to the bound.
const addLanes = (isMissing: string, onConflict: string) =>
  statement(
    [
      'keys',
      'streams',
      'addonIds',
      'jobTypes',
      'requires',
      'heavy',
      'uniques',
      'crowds',
      'crowdTypes',
      'crowdAddons',
      'crowdBoths',
    ],
    `
insert into lanes (lane_key, stream, addon_id, job_type, requires, heavy, is_unique, crowd, crowd_type,
  crowd_addon, crowd_both)
select lane_key, stream, addon_id, job_type, requires::text[], heavy::text[], is_unique,
  case when is_crowded then crowd end, case when is_crowded then crowd_type end,
  case when is_crowded then crowd_addon end, case when is_crowded then crowd_both end
from (
  select counted.*, max(own) over (partition by stream) + nth > ${ownLanesMax} as is_crowded from (
    select numbered.*, case when nth = 1 then (
      select count(*) from (select from lanes where lanes.own_stream = numbered.stream
        limit ${ownLanesMax}) counted
    ) end as own
    from (
      select fresh.*, row_number() over (partition by stream order by n) as nth
      from unnest(@keys::text[], @streams::text[], @addonIds::text[], @jobTypes::text[], @requires::text[],
        @heavy::text[], @uniques::boolean[], @crowds::bigint[], @crowdTypes::bigint[], @crowdAddons::bigint[],
          @crowdBoths::bigint[]) with ordinality as fresh
        (lane_key, stream, addon_id, job_type, requires, heavy, is_unique, crowd, crowd_type, crowd_addon,
          crowd_both, n)
      where ${isMissing}
    ) numbered
  ) counted
  order by n
) placed
on conflict (lane_key) ${onConflict}`,
  );

// An existing lane consumes no id.
const addMissing = addLanes(
  'not exists (select from lanes old where old.lane_key = fresh.lane_key)',
  'do nothing',
);
// Inserts each lane or locks its row, as one step: PostgreSQL inserts again if the row is deleted before it
// can be locked. The condition is evaluated after the lock, so nothing changes. The lock admits submissions
// and excludes sweeps.
const addOrLock = addLanes('true', 'do update set is_unique = excluded.is_unique where false');

// Another server's lanes are visible only to a statement that starts after the insert has waited for them.
const findLanes = (lock: string) =>
  statement(
    ['keys'],
    `select lane_key, lane_id, crowd is not null as is_crowded from lanes where lane_key = any(@keys::text[])
  order by lane_key ${lock}`,
  );
const readLanes = findLanes('');
const lockLanes = findLanes('for key share');

interface KeyedLane {
  words: string;
  lane: Lane;
  key: string;
}

/** Sorted, so that two servers that create the same lanes cannot deadlock. */
const keyed = (lanes: ReadonlyMap<string, Lane>): KeyedLane[] =>
  [...lanes]
    .map(([words, lane]) => ({ words, lane, key: laneKey(lane) }))
    .sort((a, b) => (a.key < b.key ? -1 : 1));

async function findPlaces(
  sql: Sql,
  find: typeof readLanes,
  lanes: readonly KeyedLane[],
): Promise<Map<string, LaneTarget>> {
  type Row = { lane_key: string; lane_id: number; is_crowded: boolean };
  const rows = await find.query<Row>(sql, { keys: textArray(lanes.map(({ key }) => key)) });
  const found = new Map(rows.map((row) => [row.lane_key, row]));
  return new Map(
    lanes.flatMap(({ words, key }): [string, LaneTarget][] => {
      const row = found.get(key);
      return row ? [[words, { laneId: row.lane_id, isCrowded: row.is_crowded }]] : [];
    }),
  );
}

async function insertLanes(
  sql: Sql,
  add: typeof addMissing,
  keyedLanes: readonly KeyedLane[],
): Promise<void> {
  const lanes = keyedLanes.map(({ lane }) => lane);
  const crowds = lanes.map(crowdKeysOf);
  await add.query(sql, {
    keys: textArray(keyedLanes.map(({ key }) => key)),
    streams: textArray(lanes.map((lane) => lane.stream ?? '')),
    addonIds: textArray(lanes.map((lane) => lane.addonId)),
    jobTypes: textArray(lanes.map((lane) => lane.jobType)),
    requires: textArray(lanes.map((lane) => textArray(lane.requires))),
    heavy: textArray(lanes.map((lane) => textArray(lane.heavy))),
    uniques: booleanArray(lanes.map((lane) => lane.unique)),
    crowds: digitArray(crowds.map(({ crowd }) => crowd)),
    crowdTypes: digitArray(crowds.map(({ crowdType }) => crowdType)),
    crowdAddons: digitArray(crowds.map(({ crowdAddon }) => crowdAddon)),
    crowdBoths: digitArray(crowds.map(({ crowdBoth }) => crowdBoth)),
  });
}

/** Locks or adds the steps to those of these lanes that are crowded, so that claims find them. */
async function keepPaths(
  sql: Sql,
  lanes: readonly KeyedLane[],
  places: ReadonlyMap<string, LaneTarget>,
): Promise<void> {
  const crowds = lanes.flatMap(({ words, lane }) => (places.get(words)?.isCrowded ? crowdKeysOf(lane) : []));
  const steps = new Map(crowds.flatMap(({ steps }) => steps.map((step) => [step.path, step])));
  if (steps.size === 0) return;
  const sorted = [...steps.keys()].sort().map((path) => steps.get(path) as PathStep);
  await keepSteps.query(sql, {
    paths: digitArray(sorted.map(({ path }) => path)),
    parents: digitArray(sorted.map(({ parent }) => parent)),
    names: digitArray(sorted.map(({ name }) => name)),
  });
}

/**
 * Creates the lanes that do not exist yet, and returns the target of each by its text. A lane that is removed
 * concurrently is missing in the answer. The paths to crowded lanes come after the lanes; see
 * `sweep-paths.ts`.
 */
export async function makeLanes(
  sql: Sql,
  lanes: ReadonlyMap<string, Lane>,
): Promise<Map<string, LaneTarget>> {
  const wanted = keyed(lanes);
  await insertLanes(sql, addMissing, wanted);
  const places = await findPlaces(sql, readLanes, wanted);
  await keepPaths(sql, wanted, places);
  return places;
}

/**
 * Returns the targets of lanes by their text, and keeps the lanes from being removed until the transaction
 * ends. Missing lanes are created. Each lane is locked or inserted once, so no sweep can make this fail,
 * however often it removes lanes.
 */
export async function keepLanes(
  sql: Sql,
  lanes: ReadonlyMap<string, Lane>,
): Promise<Map<string, LaneTarget>> {
  const wanted = keyed(lanes);
  const places = await findPlaces(sql, lockLanes, wanted);
  const missing = wanted.filter(({ words }) => !places.has(words));
  if (missing.length > 0) {
    await insertLanes(sql, addOrLock, missing);
    for (const [words, place] of await findPlaces(sql, readLanes, missing)) places.set(words, place);
  }
  // Existing lanes included: the server that created one may not have added its path yet.
  await keepPaths(sql, wanted, places);
  return places;
}

const findRemoved = statement(
  ['jobIds'],
  `
with locked as materialized (
  select lane_id from lanes
  where lane_id = any (array(select lane_id from jobs where job_id = any (@jobIds::uuid[])))
    order by lane_id for key share
)
select job_id, stream, addon_id, job_type, constraints, is_unique as "unique" from jobs
where job_id = any (@jobIds::uuid[]) and not exists (select from locked where locked.lane_id = jobs.lane_id)`,
);

const moveJobs = statement(
  ['jobIds', 'laneIds'],
  `
update jobs set lane_id = made.lane_id from unnest(@jobIds::uuid[], @laneIds::int[]) as made (job_id, lane_id)
where ${keyEquals('jobs.job_id', 'made.job_id')}`,
);

/**
 * Keeps the lanes of these jobs until the transaction ends, because the caller requeues the jobs. Lanes that
 * were removed since a job ended are created again.
 */
export async function keepLanesOf(sql: Sql, jobIds: readonly string[]): Promise<void> {
  type Row = { job_id: string; constraints: JsonObject } & Omit<
    Lane,
    'addonId' | 'jobType' | 'requires' | 'heavy'
  > & {
      addon_id: string;
      job_type: string;
    };
  const jobs = (await findRemoved.query<Row>(sql, { jobIds: uuidArray(jobIds) })).map((row) => {
    const { job_id: jobId, stream, addon_id: addonId, job_type: jobType, unique, constraints } = row;
    const lane: Lane = { stream, addonId, jobType, unique, ...storedNeedsOf(constraints) };
    return { jobId, lane, words: laneText(lane) };
  });
  if (jobs.length === 0) return;
  const places = await keepLanes(sql, new Map(jobs.map(({ words, lane }) => [words, lane])));
  await moveJobs.query(sql, {
    jobIds: uuidArray(jobs.map(({ jobId }) => jobId)),
    laneIds: numberArray(jobs.map(({ words }) => (places.get(words) as LaneTarget).laneId)),
  });
}
