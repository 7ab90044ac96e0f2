import { defineEntity, p } from '@mikro-orm/core';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { stateNumber } from '../../domain/jobs/state-machine.ts';
import { leaseStates } from '../../domain/leases/lease.ts';
import { crowdKeys } from './lane-entities.ts';

const Job = defineEntity({
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

const LiveJob = defineEntity({
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
    /** The credential that took the claim or the lease; see `domain/access/holder.ts`. */
    holder: p.integer().nullable(),
  },
});

const Outcome = defineEntity({
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
    holder: p.integer().nullable(),
  },
});

/**
 * Append-only events of a job after its submission, each written in the transaction of the change.
 * Partitioned by days of `at`; see `store/sql/events/partitions.ts`.
 */
const Event = defineEntity({
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

/**
 * One row. A job with a higher `seq` has no event of its submission, which its own row records instead; see
 * `store/sql/events/record.ts`. All other jobs were submitted before that change.
 */
const SubmissionsTold = defineEntity({
  name: 'SubmissionsTold',
  tableName: 'submissions_told',
  properties: { told_id: p.smallint().primary().autoincrement(false), after_seq: p.bigint('string') },
});

/**
 * The message of a stream's job, if messages are kept. The commit that queues the job writes it, so none is
 * lost. It gets its id when it is sent, and the commit that ends its attempt deletes it.
 */
const StreamMessage = defineEntity({
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

export const jobEntities = [Job, LiveJob, Outcome, Event, SubmissionsTold, StreamMessage];
