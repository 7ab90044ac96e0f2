import { defineEntity, p } from '@mikro-orm/core';

/**
 * The tables of statistics. Every statement that changes counted rows writes a tally in the same transaction.
 * An aggregation adds each tally to the totals and the rollups within about a second, and deletes it. At any
 * moment the correct figures are the totals plus all remaining tallies.
 */

const gauges = () => ({
  queued: p.bigint('string').defaultRaw('0'),
  /** Claimed and not leased yet, and their units. */
  claimed: p.bigint('string').defaultRaw('0'),
  reserved: p.bigint('string').defaultRaw('0'),
  /** Leased jobs, which equal the active leases, and their units. */
  running: p.bigint('string').defaultRaw('0'),
  used: p.bigint('string').defaultRaw('0'),
});

const counters = () => ({
  submitted: p.bigint('string').defaultRaw('0'),
  done: p.bigint('string').defaultRaw('0'),
  failed: p.bigint('string').defaultRaw('0'),
  canceled: p.bigint('string').defaultRaw('0'),
  timeouts: p.bigint('string').defaultRaw('0'),
  granted: p.bigint('string').defaultRaw('0'),
  expired: p.bigint('string').defaultRaw('0'),
  failed_retried: p.bigint('string').defaultRaw('0'),
});

const slots = () => p.array().columnType('smallint[]').$type<number[]>().nullable();
const counts = () => p.array().columnType('bigint[]').$type<string[]>().nullable();

/** The changes of one transaction in one lane: differences of the gauges, and increments of the counters. */
export const StatTally = defineEntity({
  name: 'StatTally',
  tableName: 'stat_tallies',
  properties: {
    /** The transaction that wrote it. */
    txid: p.bigint('string').primary(),
    tally_id: p.bigint('string').primary().autoincrement(),
    at: p.datetime(),
    lane_id: p.integer(),
    ...gauges(),
    ...counters(),
    /** Histogram slots of the durations that have ended; see `domain/stats/series.ts`. */
    waits: slots(),
    runs: slots(),
  },
});

/** The gauges without the remaining tallies: for each submitter, and for all (`''`). */
export const StatTotal = defineEntity({
  name: 'StatTotal',
  tableName: 'stat_totals',
  properties: { addon_id: p.text().primary(), ...gauges() },
});

/**
 * Sums of tallies over some minutes: for each submitter with changes, and for all (`''`) while a server was
 * alive.
 */
export const StatRollup = defineEntity({
  name: 'StatRollup',
  tableName: 'stat_rollups',
  properties: {
    addon_id: p.text().primary(),
    /** Its width in minutes. */
    level: p.smallint().primary(),
    /** Its start. */
    bucket: p.datetime().primary(),
    /** The usable units at the last aggregation; only in rows for all. */
    usable: p.bigint('string').nullable(),
    ...gauges(),
    ...counters(),
    wait_slots: slots(),
    wait_counts: counts(),
    run_slots: slots(),
    run_counts: counts(),
  },
});

/**
 * One row: the progress of the aggregation, and the time of the last audit of the totals against the jobs.
 */
export const StatFold = defineEntity({
  name: 'StatFold',
  tableName: 'stat_fold',
  properties: {
    fold_id: p.smallint().primary().autoincrement(false),
    /** No tally of an earlier transaction remains. */
    folded_before: p.bigint('string'),
    audited_at: p.datetime().nullable(),
  },
});

export const statEntities = [StatTally, StatTotal, StatRollup, StatFold];
