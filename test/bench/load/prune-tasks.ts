/** What the load process does to jobs that are over: makes them, and deletes them as a server does, beside other tasks. */
import { Pruner } from '../../../src/engine/maintenance/pruner.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Database } from '../../../src/store/database.ts';
import type { FloorPlace } from './floor.ts';

const insert = `
with ended as (
  select lpad(to_hex((extract(epoch from now() - interval '40 days') * 1000)::bigint + n), 12, '0')
    || '7000800000000000' || lpad(to_hex(n % 65536), 4, '0') as id, now() - interval '40 days' as at
  from generate_series(1, $1::int) as n
), job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, priority, cost_units, constraints, payload, is_unique,
    tags, max_attempts, retry_backoff_s, bytes, created_at)
  select id::uuid, 0, 0, 'bench', 'bench', 1, 1, '{}', '{"prompt": "a cat on a mat"}', false, '{}', 1, 2, 30, at from ended
)
insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, started_at, finished_at, fence,
  lease_token, ttl_s, lease_state, last_heartbeat_at, expires_at, release_status)
select id::uuid, 6, 1, 'w', gen_random_uuid(), false, at, at, 0, gen_random_uuid(), 60, 2, at, at, 0 from ended`;

/** Jobs of one statement. */
const seedMax = 50_000;

interface Pruning {
  database: Database;
  pruner: Pruner;
}

let pruning: Pruning | undefined;
let round: Promise<number> | undefined;

async function open(place: FloorPlace): Promise<Pruning> {
  if (pruning) return pruning;
  const { openStore } = await import('./seed.ts');
  const database = await openStore(place);
  const log = createLog({ level: 'warn', human: true });
  const pruner = new Pruner({ database, retention: { jobs: 30, files: 30, audit: 365 }, log });
  pruning = { database, pruner };
  return pruning;
}

export const pruneTasks = {
  /** Jobs that ended long ago, with a lease each. */
  async seedEnded({ place, jobs }: { place: FloorPlace; jobs: number }): Promise<void> {
    const { database } = await open(place);
    for (let left = jobs; left > 0; left -= seedMax) await database.query(insert, [Math.min(left, seedMax)]);
  },

  async beginPruning(place: FloorPlace): Promise<void> {
    const { pruner } = await open(place);
    pruner.start();
    round = pruner.runOnce();
  },

  /** Stops, and says how many jobs were deleted. */
  async endPruning(): Promise<number> {
    await pruning?.pruner.stop();
    const pruned = await round;
    round = undefined;
    return pruned ?? 0;
  },
};

export async function closePruning(): Promise<void> {
  await pruneTasks.endPruning();
  await pruning?.database.close();
  pruning = undefined;
}
