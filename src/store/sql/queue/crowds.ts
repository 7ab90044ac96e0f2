/**
 * Crowds: how a claim finds the first job among any number of lanes.
 *
 * A claim merges the heads of lanes. That is fast for a few dozen lanes and hopeless for a million, and any
 * submitter can create a million: each new type, submitter or requirement is a lane. So only the first
 * `ownLanesMax` lanes of a stream are read one by one; they are *own* lanes. Each later lane of that stream
 * is *crowded*. Its jobs also have four keys, each with a partial index in the order of the queue. A claim
 * reads one index from its front, however many lanes the index covers:
 *
 *     crowd        the stream, whether the jobs are unique, and their requirements
 *     crowd_type   the same and the job type        (claims that name types)
 *     crowd_addon  the same and the submitter       (claims that name a submitter)
 *     crowd_both   the same, the submitter and the type
 *
 * Requirements are part of the key, because a claim must not scan a million jobs that its worker may not
 * have. The sets of requirements form a tree: each set is the path of its names in their order, and
 * `requirement_paths` has one row a step. A claim descends that tree along names that its worker has. It
 * visits no set that the worker cannot satisfy. Steps that lead to no crowded lane are removed in the
 * background; see `sweep-paths.ts`.
 *
 * Rules for changes of this:
 *
 * - A lane is own or crowded from its creation, and never changes. Jobs of a lane that was own would lack
 *   keys.
 * - Keys are digests and may collide. A claim therefore checks the lane of each job that it finds through a
 *   key.
 * - The refusals of a worker (`x_heavy: false`) and `max_units` are in no key: a claim scans past such jobs
 *   within their crowd.
 * - Jobs of own lanes have no keys, and cost nothing in these indexes.
 */
import { hash } from 'node:crypto';
import { stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Lane } from './lanes.ts';

/**
 * Number of a stream's lanes that a claim reads one by one. A soft bound: servers that create lanes
 * concurrently may exceed it.
 */
export const ownLanesMax = 50;
/**
 * Number of names of a set of requirements that form its path. Further ones are compared when a job is found.
 */
export const pathNamesMax = 8;

/**
 * Condition of a ready job in the indexes of crowds. It differs from that of the queue's index by lane: a
 * claim on a crowd could then use that index, and the planner would read all of it when statistics call it
 * empty. QUEUED is the number 0, and no state is below it.
 */
export const isReadyInCrowd = `(state + (check_at is not null)::int) = ${stateNumber('QUEUED')}`;

/** Digests that were computed lately: a claim has the same few names as the claims before it. */
const remembered = new Map<string, bigint>();
const rememberedMax = 10_000;
const rememberedChars = 200;

/** The first eight bytes of a digest, as PostgreSQL's bigint; migration 0012 computes the same in SQL. */
function digestOf(text: string): bigint {
  const known = remembered.get(text);
  if (known !== undefined) return known;
  const digest = hash('sha256', text, 'buffer').readBigInt64BE(0);
  if (remembered.size >= rememberedMax) remembered.clear();
  if (text.length <= rememberedChars) remembered.set(text, digest);
  return digest;
}

const rootOf = (stream: string, unique: boolean): bigint =>
  digestOf(`${unique ? 'unique' : 'common'}:${stream}`);
const typeKey = (jobType: string): bigint => digestOf(`type:${jobType}`);
const addonKey = (addonId: string): bigint => digestOf(`addon:${addonId}`);
const nameKey = (name: string): bigint => digestOf(`name:${name}`);

/** A step from a set of requirements to the set with one more name. Numbers are bigints in decimal digits. */
export interface PathStep {
  parent: string;
  name: string;
  path: string;
}

/** The keys that the jobs of a lane have if it is crowded, and the path to them. */
export interface CrowdKeys {
  crowd: string;
  crowdType: string;
  crowdAddon: string;
  crowdBoth: string;
  steps: PathStep[];
}

export function crowdKeysOf(lane: Lane): CrowdKeys {
  let path = rootOf(lane.stream ?? '', lane.unique);
  const steps = lane.requires.slice(0, pathNamesMax).map((name): PathStep => {
    const parent = path;
    path = digestOf(`${parent}:${name}`);
    return { parent: `${parent}`, name: `${nameKey(name)}`, path: `${path}` };
  });
  const [type, addon] = [typeKey(lane.jobType), addonKey(lane.addonId)];
  return {
    crowd: `${path}`,
    crowdType: `${path ^ type}`,
    crowdAddon: `${path ^ addon}`,
    crowdBoth: `${path ^ type ^ addon}`,
    steps,
  };
}

/** The roots of the paths of these streams: for each stream that of common jobs, then that of unique ones. */
export const rootsOf = (streams: readonly string[]): bigint[] =>
  streams.flatMap((stream) => [rootOf(stream, false), rootOf(stream, true)]);

export const nameKeysOf = (names: readonly string[]): bigint[] => names.map(nameKey);

/** Values that turn the end of a path into a key of the filter's column. */
export function keysOf(addonId: string | null, jobTypes: readonly string[] | null): bigint[] {
  const addon = addonId === null ? 0n : addonKey(addonId);
  return jobTypes === null ? [addon] : jobTypes.map((jobType) => addon ^ typeKey(jobType));
}
