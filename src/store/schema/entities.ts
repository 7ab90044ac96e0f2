import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { stateNumber } from '../../domain/jobs/state-machine.ts';
import { leaseStates } from '../../domain/leases/lease.ts';
import { fileEntities } from './file-entities.ts';
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
 * - `capacity`, `pulse`, `identity`, `outages`, `prune_walks`, `workers` and the tables of figures refer to
 *   no other table.
 *
 * The statements guarantee what a key would: one statement writes or deletes all rows that belong together.
 */

/** Keys by which a claim finds the jobs of crowded lanes; null elsewhere. See `store/sql/queue/crowds.ts`. */
const crowdKeys = () => ({
  crowd: p.bigint('string').nullable(),
  crowd_type: p.bigint('string').nullable(),
  crowd_addon: p.bigint('string').nullable(),
  crowd_both: p.bigint('string').nullable(),
});

/**
 * A combination of all properties, except the cost, that decide which worker may have a job. The queue is
 * ordered within each lane, so a claim reads the heads of suitable lanes and never scans unsuitable jobs.
 */
export const Lane = defineEntity({
  name: 'Lane',
  tableName: 'lanes',
  indexes: [
    { name: 'lanes_addon', properties: ['addon_id', 'job_type'] },
    { name: 'lanes_stream_lane', properties: ['stream', 'lane_id'] },
    { name: 'lanes_own_stream', properties: ['own_stream'] },
    { name: 'lanes_crowd', properties: ['crowd'], where: { crowd: { $ne: null } } },
  ],
  properties: {
    lane_id: p.integer().primary(),
    /** A digest of the other columns, which together would be too long for an index. */
    lane_key: p.text().unique(),
    /** Empty for jobs without a stream. */
    stream: p.text(),
    addon_id: p.text(),
    job_type: p.text(),
    requires: p.array().columnType('text[]').$type<string[]>(),
    heavy: p.array().columnType('text[]').$type<string[]>(),
    /** Its jobs are not for a worker that already holds a lease. */
    is_unique: p.boolean().default(false),
    ...crowdKeys(),
    /** The stream of a lane that claims read individually; null for a crowded lane. */
    own_stream: p
      .text()
      .nullable()
      .generated('CASE\n    WHEN (crowd IS NULL) THEN stream\n    ELSE NULL::text\nEND stored'),
  },
});

/** A step from a set of requirements to the set with one more name; see `store/sql/queue/crowds.ts`. */
export const RequirementPath = defineEntity({
  name: 'RequirementPath',
  tableName: 'requirement_paths',
  properties: {
    parent_id: p.bigint('string').primary(),
    name_key: p.bigint('string').primary(),
    path_id: p.bigint('string'),
  },
});

/** A stream with a removed lane. It stays listed while finished jobs of it may be kept. */
export const IdleStream = defineEntity({
  name: 'IdleStream',
  tableName: 'idle_streams',
  indexes: [{ name: 'idle_streams_since', properties: ['idle_since'] }],
  properties: {
    stream: p.text().primary(),
    /** When its latest lane was removed. */
    idle_since: p.datetime(),
  },
});

export const LiveJob = defineEntity({
  name: 'LiveJob',
  tableName: 'live_jobs',
  indexes: [
    {
      name: 'live_jobs_queue',
      properties: ['lane_id', 'priority', 'seq'],
      where: { state: stateNumber('QUEUED'), check_at: null },
    },
    {
      name: 'live_jobs_crowd',
      properties: ['crowd', 'priority', 'seq'],
      where: '(((state + ((check_at IS NOT NULL))::integer) = 0) AND (crowd IS NOT NULL))',
    },
    {
      name: 'live_jobs_crowd_type',
      properties: ['crowd_type', 'priority', 'seq'],
      where: '(((state + ((check_at IS NOT NULL))::integer) = 0) AND (crowd_type IS NOT NULL))',
    },
    {
      name: 'live_jobs_crowd_addon',
      properties: ['crowd_addon', 'priority', 'seq'],
      where: '(((state + ((check_at IS NOT NULL))::integer) = 0) AND (crowd_addon IS NOT NULL))',
    },
    {
      name: 'live_jobs_crowd_both',
      properties: ['crowd_both', 'priority', 'seq'],
      where: '(((state + ((check_at IS NOT NULL))::integer) = 0) AND (crowd_both IS NOT NULL))',
    },
    { name: 'live_jobs_due', properties: ['check_at'], where: { check_at: { $ne: null } } },
    { name: 'live_jobs_request', properties: ['request_id'], where: { request_id: { $ne: null } } },
    {
      name: 'live_jobs_holders',
      properties: ['state', 'claimed_by'],
      where: { state: { $ne: stateNumber('QUEUED') } },
    },
  ],
  uniques: [{ name: 'live_jobs_lease', properties: ['lease_id'], where: { lease_id: { $ne: null } } }],
  properties: {
    job_id: p.uuid().primary(),
    lane_id: p.integer(),
    /** The position in the queue: first in, first out within a priority. */
    seq: p.bigint('string'),
    priority: p.smallint(),
    cost_units: p.integer(),
    /** As in `jobs`: limits the size of a claim's answer. */
    bytes: p.integer(),
    state: p.smallint(),
    /**
     * When the reaper has to check the row: a claim's end, a queued job's earliest start, or a time before
     * which its lease cannot expire. Null for a queued job that is ready; infinity for one that costs more
     * than the total capacity. The only indexed time.
     */
    check_at: p.datetime().nullable(),
    attempts: p.integer(),
    /** Number of attempts from which an expiry or a retryable failure is final; RetryJob raises it. */
    attempts_limit: p.integer(),
    /** Consecutive claims that expired. */
    claims_lost: p.smallint(),
    claimed_by: p.text().nullable(),
    claim_expires_at: p.datetime().nullable(),
    /** The request of the current claim or lease. */
    request_id: p.text().nullable(),
    /** The current or last lease; it is active in the states LEASED and RUNNING. */
    lease_id: p.uuid().nullable(),
    /** When the current or last lease was granted. */
    started_at: p.datetime().nullable(),
    lease_token: p.uuid().nullable(),
    fence: p.bigint('string').nullable(),
    lease_ttl_s: p.integer().nullable(),
    /** How long the lease lasts beyond its TTL, as set when it was granted. */
    lease_grace_s: p.integer().default(0),
    last_heartbeat_at: p.datetime().nullable(),
    /** Every heartbeat moves it, so it is in no index; `check_at` follows it once per TTL. */
    expires_at: p.datetime().nullable(),
    /** Limit for all heartbeats: `max_runtime_s` after the grant. */
    lease_ends_at: p.datetime().nullable(),
    cancel_requested: p.boolean(),
    progress: p.double().$type<number>().nullable(),
    note: p.text().nullable(),
    updated_at: p.datetime(),
    /** When it could first be leased for its current or next attempt. Null in rows older than the column. */
    ready_at: p.datetime().nullable(),
    /** Heartbeats after the grant; null before the first one, and for leases older than the column. */
    heartbeats: p.integer().nullable(),
    /** The longest time between two heartbeats so far, counted from the grant, and when it began. */
    longest_silence_ms: p.integer().nullable(),
    longest_silence_since: p.datetime().nullable(),
    ...crowdKeys(),
  },
});
export type LiveJobRow = InferEntity<typeof LiveJob>;

export const Outcome = defineEntity({
  name: 'Outcome',
  tableName: 'job_outcomes',
  indexes: [
    {
      name: 'job_outcomes_unhappy',
      properties: ['state', 'job_id'],
      where: { state: { $ne: stateNumber('DONE') } },
    },
    {
      name: 'job_outcomes_dead',
      properties: ['dead_stream', 'job_id'],
      where: { dead_stream: { $ne: null } },
    },
    {
      name: 'job_outcomes_worker',
      properties: ['claimed_by', 'lease_id'],
      where: { fence: { $ne: null } },
    },
    {
      name: 'job_outcomes_unreleased',
      properties: ['lease_state', 'lease_id'],
      where: { lease_state: { $ne: leaseStates.indexOf('RELEASED') } },
    },
  ],
  uniques: [{ name: 'job_outcomes_lease', properties: ['lease_id'], where: { fence: { $ne: null } } }],
  properties: {
    job_id: p.uuid().primary(),
    state: p.smallint(),
    attempts: p.integer(),
    claimed_by: p.text().nullable(),
    lease_id: p.uuid().nullable(),
    cancel_requested: p.boolean(),
    progress: p.double().$type<number>().nullable(),
    note: p.text().nullable(),
    started_at: p.datetime().nullable(),
    finished_at: p.datetime(),
    error_text: p.text().nullable(),
    error_detail: p.json<JsonObject>().nullable(),
    result: p.json<unknown>().nullable(),
    metrics: p.json<JsonObject>().nullable(),
    /** The stream that dead-lettered the job, because it failed for good or too often. */
    dead_stream: p.text().nullable(),
    /**
     * From here on: the lease that the job ended with; null if it ended without one. Earlier leases are in
     * `leases`.
     */
    fence: p.bigint('string').nullable(),
    /** Kept to tell a repeated release from another worker's. Never shown. */
    lease_token: p.uuid().nullable(),
    ttl_s: p.integer().nullable(),
    lease_state: p.smallint().nullable(),
    last_heartbeat_at: p.datetime().nullable(),
    expires_at: p.datetime().nullable(),
    release_status: p.smallint().nullable(),
    heartbeats: p.integer().nullable(),
    longest_silence_ms: p.integer().nullable(),
    longest_silence_since: p.datetime().nullable(),
    /** All ids that the attempt's message had in Redis; null if they were not kept. */
    message_ids: p.array().columnType('text[]').$type<string[]>().nullable(),
  },
});
export type OutcomeRow = InferEntity<typeof Outcome>;

export const Job = defineEntity({
  name: 'Job',
  tableName: 'jobs',
  indexes: [{ name: 'jobs_addon', properties: ['addon_id', 'job_id'] }],
  uniques: [
    {
      name: 'jobs_client_request',
      properties: ['addon_id', 'client_request_id'],
      where: { client_request_id: { $ne: null } },
    },
  ],
  properties: {
    job_id: p.uuid().primary(),
    seq: p.bigint('string'),
    lane_id: p.integer(),
    addon_id: p.text(),
    job_type: p.text(),
    stream: p.text().nullable(),
    priority: p.smallint(),
    cost_units: p.integer(),
    constraints: p.json<JsonObject>(),
    payload: p.json<JsonObject>(),
    client_request_id: p.text().nullable(),
    is_unique: p.boolean(),
    tags: p.array().columnType('text[]').$type<string[]>(),
    max_runtime_s: p.integer().nullable(),
    max_attempts: p.integer(),
    retry_backoff_s: p.integer(),
    run_at: p.datetime().nullable(),
    /** Size of `constraints` and `payload` as JSON text. */
    bytes: p.integer(),
    created_at: p.datetime(),
  },
});
export type JobRow = InferEntity<typeof Job>;

/**
 * Append-only events of a job after its submission, each written in the transaction of the change.
 * Partitioned by days of `at`; see `store/sql/events/partitions.ts`.
 */
export const Event = defineEntity({
  name: 'Event',
  tableName: 'job_events',
  properties: {
    job_id: p.uuid().primary(),
    event_id: p.bigint('string').primary().autoincrement(),
    at: p.datetime(),
    lease_id: p.uuid().nullable(),
    type: p.smallint(),
    from_state: p.smallint().nullable(),
    to_state: p.smallint().nullable(),
    /** The worker, submitter, operator or server service that caused the event. */
    actor: p.text(),
    data: p.json<JsonObject>().nullable(),
    /** Details of a grant's lease. */
    attempt: p.integer().nullable(),
    fence: p.bigint('string').nullable(),
    ttl_s: p.integer().nullable(),
    expires_at: p.datetime().nullable(),
    /** The lease was released with this status, which caused the event; see `store/sql/events/record.ts`. */
    release_status: p.smallint().nullable(),
  },
});
export type EventRow = InferEntity<typeof Event>;

/**
 * An ended lease, which is an attempt, whose job continued. Written once. Active leases are in `live_jobs`,
 * and a job's last lease is in its outcome.
 */
export const EndedLease = defineEntity({
  name: 'EndedLease',
  tableName: 'leases',
  indexes: [
    { name: 'leases_job', properties: ['job_id', 'lease_id'] },
    { name: 'leases_worker', properties: ['worker_id', 'lease_id'] },
    {
      name: 'leases_unreleased',
      properties: ['state', 'lease_id'],
      where: { state: { $ne: leaseStates.indexOf('RELEASED') } },
    },
  ],
  properties: {
    lease_id: p.uuid().primary(),
    job_id: p.uuid(),
    attempt: p.integer(),
    worker_id: p.text(),
    cost_units: p.integer(),
    ttl_s: p.integer(),
    fence: p.bigint('string'),
    /** Kept to tell a repeated release from another worker's. Never shown. */
    lease_token: p.uuid(),
    state: p.smallint(),
    granted_at: p.datetime(),
    last_heartbeat_at: p.datetime(),
    expires_at: p.datetime(),
    ended_at: p.datetime(),
    release_status: p.smallint().nullable(),
    /** The job was requeued. */
    requeued: p.boolean(),
    error_text: p.text().nullable(),
    error_detail: p.json<JsonObject>().nullable(),
    /** The stream dead-lettered the job with this lease. */
    dead_lettered: p.boolean().default(false),
    heartbeats: p.integer().nullable(),
    longest_silence_ms: p.integer().nullable(),
    longest_silence_since: p.datetime().nullable(),
    /** All ids that the attempt's message had in Redis; null if they were not kept. */
    message_ids: p.array().columnType('text[]').$type<string[]>().nullable(),
  },
});

/**
 * The message of a stream's job, if messages are kept. The commit that queues the job writes it, so none is
 * lost. It gets its id when it is sent, and the commit that ends its attempt deletes it.
 */
export const StreamMessage = defineEntity({
  name: 'StreamMessage',
  tableName: 'stream_messages',
  indexes: [{ name: 'stream_messages_unsent', properties: ['written_at'], where: { message_id: null } }],
  properties: {
    job_id: p.uuid().primary(),
    stream: p.text(),
    /** Its attempt, from 1. */
    attempt: p.integer(),
    /** Its id in Redis; null until it is sent. */
    message_id: p.text().nullable(),
    written_at: p.datetime(),
    /** Its ids before Redis lost it, the latest first. A worker may have received any of them. */
    earlier_ids: p.array().columnType('text[]').$type<string[]>().nullable(),
  },
});

/**
 * One row. A job with a higher `seq` has no event of its submission, which its own row records instead; see
 * `store/sql/events/record.ts`. All other jobs were submitted before that change.
 */
export const SubmissionsTold = defineEntity({
  name: 'SubmissionsTold',
  tableName: 'submissions_told',
  properties: { told_id: p.smallint().primary().autoincrement(false), after_seq: p.bigint('string') },
});

/** One row: the identity of this database for other systems. */
export const Identity = defineEntity({
  name: 'Identity',
  tableName: 'identity',
  properties: { identity_id: p.smallint().primary().autoincrement(false), database_id: p.uuid() },
});

/** One row, locked by every transaction that takes or returns capacity, after all other rows. */
export const CapacityRow = defineEntity({
  name: 'CapacityRow',
  tableName: 'capacity',
  properties: {
    capacity_id: p.smallint().primary().autoincrement(false),
    /** Null until an operator sets it; the setting applies until then. */
    total: p.integer().nullable(),
    busy_rating: p.smallint(),
    /** The sum over the active leases. */
    used: p.bigint('string'),
  },
});

/** The changes of the capacity with their actors, times, old and new values. */
export const CapacityChangeRow = defineEntity({
  name: 'CapacityChangeRow',
  tableName: 'capacity_changes',
  indexes: [{ name: 'capacity_changes_at', properties: ['at'] }],
  properties: {
    change_id: p.bigint('string').primary().autoincrement(),
    at: p.datetime(),
    requested_by: p.text(),
    reason: p.text().nullable(),
    total_before: p.integer(),
    total_after: p.integer(),
    busy_rating_before: p.smallint(),
    busy_rating_after: p.smallint(),
  },
});

/** One row that every live server keeps fresh, so that a joint outage can be detected afterwards. */
export const Pulse = defineEntity({
  name: 'Pulse',
  tableName: 'pulse',
  properties: { pulse_id: p.smallint().primary().autoincrement(false), alive_at: p.datetime() },
});

/** A time without a live server, and the progress of compensating its leases. */
export const Outage = defineEntity({
  name: 'Outage',
  tableName: 'outages',
  indexes: [{ name: 'outages_open', properties: ['outage_id'], where: { next_lease_id: { $ne: null } } }],
  properties: {
    outage_id: p.bigint('string').primary().autoincrement(),
    began_at: p.datetime(),
    ended_at: p.datetime(),
    /** Leases up to this one are compensated; null when all are. */
    next_lease_id: p.uuid().nullable(),
    leases_extended: p.integer(),
    /** Owners of file leases, which are compensated at once. */
    owners_extended: p.integer().default(0),
  },
});

/**
 * The progress of a deletion of old rows, which any server may continue; see
 * `store/sql/maintenance/prune.ts`.
 */
export const PruneWalk = defineEntity({
  name: 'PruneWalk',
  tableName: 'prune_walks',
  properties: {
    walk: p.text().primary(),
    /** This round has checked all rows up to here; null before its start. */
    mark: p.text().nullable(),
    /** When the next round may begin. */
    rests_until: p.datetime(),
  },
});

/** The oldest server version that may write beside each migration; see `store/schema-compatibility.ts`. */
export const SchemaCompatibility = defineEntity({
  name: 'SchemaCompatibility',
  tableName: 'schema_compatibility',
  properties: {
    migration: p.text().primary(),
    oldest_writer: p.text(),
    recorded_at: p.datetime().defaultRaw('clock_timestamp()'),
  },
});

export const entities = [
  SchemaCompatibility,
  Lane,
  RequirementPath,
  IdleStream,
  Job,
  LiveJob,
  Outcome,
  Event,
  EndedLease,
  StreamMessage,
  SubmissionsTold,
  Identity,
  CapacityRow,
  CapacityChangeRow,
  Pulse,
  Outage,
  PruneWalk,
  ...fileEntities,
  ...statEntities,
  ...workerEntities,
];
