import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { JsonObject } from '../domain/job.ts';
import { stateNumber } from '../domain/machine.ts';

/**
 * The tables. Properties are named exactly as their columns, so a row that a hot statement returns and an entity
 * that MikroORM loads have the same shape.
 *
 * Hot and cold are kept apart. `jobs` holds what was submitted and is written once. `live_jobs` holds one narrow row
 * for as long as a job is unfinished: claims and heartbeats rewrite it, and never a payload. `job_outcomes` gets a
 * row when the job ends and the live row goes. A job therefore is in `jobs` and in exactly one of the other two.
 */

/**
 * A combination of everything, but for the cost, that decides which worker may have a job. The queue is ordered within each
 * lane, so a claim reads the heads of the lanes that suit it and never walks over jobs that do not.
 */
export const Lane = defineEntity({
  name: 'Lane',
  tableName: 'lanes',
  indexes: [{ name: 'lanes_addon', properties: ['addon_id', 'job_type'] }],
  properties: {
    lane_id: p.integer().primary(),
    /** A digest of the other columns; they together would be too long for an index. */
    lane_key: p.text().unique(),
    /** Empty for jobs without a stream. */
    stream: p.text(),
    addon_id: p.text(),
    job_type: p.text(),
    requires: p.array().columnType('text[]').$type<string[]>(),
    heavy: p.array().columnType('text[]').$type<string[]>(),
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
    { name: 'live_jobs_due', properties: ['check_at'], where: { check_at: { $ne: null } } },
    {
      name: 'live_jobs_claim_request',
      properties: ['claim_request_id'],
      where: { claim_request_id: { $ne: null } },
    },
  ],
  properties: {
    job_id: p.uuid().primary(),
    lane_id: p.integer(),
    /** The place in line: first in, first out within a priority. */
    seq: p.bigint('string'),
    priority: p.smallint(),
    cost_units: p.integer(),
    /** As in `jobs`: a claim stops before its answer grows too large. */
    bytes: p.integer(),
    state: p.smallint(),
    /**
     * When the reaper has to look at the row: a claim's end, a queued job's earliest start. Null for a queued job
     * that may be claimed now. The only time that is indexed.
     */
    check_at: p.datetime().nullable(),
    attempts: p.integer(),
    /** Attempts from which an expiry or a retryable failure is final; RetryJob raises it. */
    attempts_limit: p.integer(),
    /** Claims that ran out in a row. */
    claims_lost: p.smallint(),
    claimed_by: p.text().nullable(),
    claim_expires_at: p.datetime().nullable(),
    claim_request_id: p.text().nullable(),
    lease_id: p.uuid().nullable(),
    started_at: p.datetime().nullable(),
    cancel_requested: p.boolean(),
    progress: p.double().$type<number>().nullable(),
    note: p.text().nullable(),
    updated_at: p.datetime(),
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
  ],
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
    /** The size of `constraints` and `payload` as JSON text. */
    bytes: p.integer(),
    created_at: p.datetime(),
  },
});
export type JobRow = InferEntity<typeof Job>;

/** Append-only: what happened to a job, written in the transaction in which it happened. */
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
    /** Who did it: a worker, a submitter, an operator, or a service of the server. */
    actor: p.text(),
    data: p.json<JsonObject>().nullable(),
  },
});
export type EventRow = InferEntity<typeof Event>;

export const entities = [Lane, Job, LiveJob, Outcome, Event];
