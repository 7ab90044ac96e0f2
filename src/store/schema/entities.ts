import { accessEntities } from './access-entities.ts';
import { fileEntities } from './file-entities.ts';
import { jobEntities } from './job-entities.ts';
import { laneEntities } from './lane-entities.ts';
import { leaseEntities } from './lease-entities.ts';
import { serverEntities } from './server-entities.ts';
import { statEntities } from './stat-entities.ts';
import { workerEntities } from './worker-entities.ts';

/**
 * The tables. Properties have the names of their columns, so a row that a statement returns and an entity
 * that MikroORM loads have the same shape.
 *
 * Hot and cold data are separate. `jobs` holds submissions and is written once. `live_jobs` holds one narrow
 * row for each unfinished job: claims and heartbeats rewrite it without touching a payload. `job_outcomes`
 * gets a row when the job ends, and the live row is deleted. A job is therefore in `jobs` and in exactly one
 * of the other two.
 *
 * Lists, details and cold writes use these entities. `test/store/raw-statements.json` lists all other
 * statements, each with its reason.
 *
 * There are no foreign keys, for these reasons:
 *
 * - `leases.job_id` to `jobs`, the key that the queue contract marks: a lease row took 47 µs of PostgreSQL's
 *   processor time without the key and 50.5 µs with it (medians of 7 alternating runs, 20,000 rows each,
 *   PostgreSQL 15). Every expiry and every retry would pay that, each would lock and dirty the page of a
 *   finished `jobs` row, and the pruner would pay for it again.
 * - `lane_id` to `lanes`: a submission locks its lane's row once for all jobs of the batch (`for key share`).
 *   A key would look it up again for each job.
 * - `live_jobs`, `job_outcomes` and `stream_messages` to `jobs`: the same lookup on every submission and
 *   completion.
 * - `job_events` to `jobs`: the history is dropped by whole days, and rows of deleted jobs go with their day.
 * - `file_leases`, `file_contentions` and `file_losses` to `file_owners`: all are written under the owner's
 *   lock, and the pruner removes an owner while closed contentions still name it.
 * - `api_keys`, `auth_state`, `audit_events`, `capacity`, `pulse`, `identity`, `outages`, `prune_walks`,
 *   `sessions`, `workers` and the tables of figures refer to no other table.
 *
 * The statements guarantee what a key would: one statement writes or deletes all rows that belong together.
 */
export const entities = [
  ...serverEntities,
  ...laneEntities,
  ...jobEntities,
  ...leaseEntities,
  ...fileEntities,
  ...statEntities,
  ...workerEntities,
  ...accessEntities,
];
