/** Figures of a month, beside jobs that wait and jobs that are over; and whoever asks for them. */
import { stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import { migrate } from '../../../src/store/migrate.ts';
import { drive, forCount, type Round } from './drive.ts';
import type { FloorPlace } from './floor.ts';
import { get } from './lean-http.ts';
import { httpTo } from './targets.ts';

const jobsPerStatement = 100_000;
const addons = 10;
/** Slots that the durations of a bucket fall into. */
const slots = 60;

export interface StatsSeed {
  place: FloorPlace;
  queued: number;
  finished: number;
}

/** Ids come in their order, as real ones do: in any other the indexes would take minutes to fill. */
const orderedId = "('01900000-0000-7000-8000-' || lpad(to_hex(seq), 12, '0'))::uuid";

const insertQueued = `
with job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, priority, cost_units, constraints, payload, is_unique, tags,
    max_attempts, retry_backoff_s, bytes, created_at)
  select ${orderedId}, seq, 1, 'addon1', 't', 2, 1, '{}', '{}', false, '{}', 1, 0, 4, now()
  from (select nextval('job_events_event_id_seq') as seq from generate_series(1, $1::int)) numbered
  returning job_id, seq
)
insert into live_jobs (job_id, lane_id, seq, priority, cost_units, bytes, state, attempts, attempts_limit, claims_lost,
  cancel_requested, updated_at, ready_at)
select job_id, 1, seq, 2, 1, 4, ${stateNumber('QUEUED')}, 0, 1, 0, false, now(), now() from job`;

const insertFinished = `
with job as (
  insert into jobs (job_id, seq, lane_id, addon_id, job_type, priority, cost_units, constraints, payload, is_unique, tags,
    max_attempts, retry_backoff_s, bytes, created_at)
  select ${orderedId}, seq, 1, 'addon1', 't', 2, 1, '{}', '{}', false, '{}', 1, 0, 4, now()
  from (select nextval('job_events_event_id_seq') as seq from generate_series(1, $1::int)) numbered
  returning job_id
)
insert into job_outcomes (job_id, state, attempts, claimed_by, lease_id, cancel_requested, started_at, finished_at)
select job_id, ${stateNumber('DONE')}, 1, 'w', gen_random_uuid(), false, now(), now() from job`;

const insertRollups = `
insert into stat_rollups (addon_id, level, bucket, usable, queued, running, submitted, done, granted, wait_slots, wait_counts,
  run_slots, run_counts)
select case when n = 0 then '' else 'addon' || n end, level,
  date_bin(level * interval '1 minute', now(), 'epoch') - m * level * interval '1 minute',
  case when n = 0 then 100 end, 1, 0, 50, 49, 49, slots, counts, slots, counts
from generate_series(0, $1::int) as n, (values (1, 2880), (5, 6336), (60, 720)) as kept (level, buckets),
  generate_series(1, buckets) as m,
  (select array_agg(slot order by slot) as slots, array_agg(slot * 7 order by slot) as counts
    from generate_series(100, 99 + $2::int) as slot) as histogram`;

export const statsTasks = {
  async seedStats({ place, queued, finished }: StatsSeed): Promise<void> {
    const { openStore } = await import('./seed.ts');
    const database = await openStore(place);
    try {
      await migrate(database);
      await database.query(
        "insert into lanes (lane_id, lane_key, stream, addon_id, job_type, requires, heavy) values (1, 'stats', '', 'addon1', 't', '{}', '{}')",
        [],
      );
      await database.query("select setval('lanes_lane_id_seq', 1)", []);
      for (const [text, jobs] of [
        [insertQueued, queued],
        [insertFinished, finished],
      ] as const) {
        for (let left = jobs; left > 0; left -= jobsPerStatement)
          await database.query(text, [Math.min(left, jobsPerStatement)]);
      }
      await database.query(insertRollups, [addons, slots]);
      await database.query(
        `insert into stat_totals (addon_id, queued) values ('', $1::bigint), ('addon1', $1::bigint)
        on conflict (addon_id) do update set queued = excluded.queued`,
        [queued],
      );
      await database.query('update stat_fold set audited_at = clock_timestamp()', []);
    } finally {
      await database.close();
    }
  },

  /** One after the other, as whoever looks at a dashboard does. */
  async readStats(on: { address: string; path: string; reads: number }): Promise<Round> {
    const [connection] = httpTo(on.address, 1);
    const request = get(on.path);
    return drive(
      1,
      forCount(on.reads, async () => {
        const status = await connection?.send(request);
        if (status !== 200) throw new Error(`${on.path} answered ${status}`);
        return 1;
      }),
    );
  },
};
