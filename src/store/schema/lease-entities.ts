import { defineEntity, p } from '@mikro-orm/core';
import type { JsonObject } from '../../domain/jobs/job.ts';
import { leaseStates } from '../../domain/leases/lease.ts';

/**
 * An ended lease, which is an attempt, whose job continued. Written once. Active leases are in `live_jobs`,
 * and a job's last lease is in its outcome.
 */
const EndedLease = defineEntity({
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
    /** The credential that held it; see `domain/access/holder.ts`. */
    holder: p.integer().nullable(),
  },
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

export const leaseEntities = [EndedLease, CapacityRow, CapacityChangeRow];
