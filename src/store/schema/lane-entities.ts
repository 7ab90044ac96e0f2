import { defineEntity, p } from '@mikro-orm/core';

/** Keys by which a claim finds the jobs of crowded lanes; null elsewhere. See `store/sql/queue/crowds.ts`. */
export const crowdKeys = () => ({
  crowd: p.bigint('string').nullable(),
  crowd_type: p.bigint('string').nullable(),
  crowd_addon: p.bigint('string').nullable(),
  crowd_both: p.bigint('string').nullable(),
});

/**
 * A combination of all properties, except the cost, that decide which worker may have a job. The queue is
 * ordered within each lane, so a claim reads the heads of suitable lanes and never scans unsuitable jobs.
 */
const Lane = defineEntity({
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
const RequirementPath = defineEntity({
  name: 'RequirementPath',
  tableName: 'requirement_paths',
  properties: {
    parent_id: p.bigint('string').primary(),
    name_key: p.bigint('string').primary(),
    path_id: p.bigint('string'),
  },
});

/** A stream with a removed lane. It stays listed while finished jobs of it may be kept. */
const IdleStream = defineEntity({
  name: 'IdleStream',
  tableName: 'idle_streams',
  indexes: [{ name: 'idle_streams_since', properties: ['idle_since'] }],
  properties: {
    stream: p.text().primary(),
    /** When its latest lane was removed. */
    idle_since: p.datetime(),
  },
});

export const laneEntities = [Lane, RequirementPath, IdleStream];
