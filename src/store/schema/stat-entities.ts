import { defineEntity, p } from '@mikro-orm/core';

/**
 * The tables of the figures. Every statement that changes what is counted writes a tally of it, in the same transaction;
 * a tally is added to the totals and the roll-ups within a second or so, and then it is gone. What is true at any moment
 * is therefore the totals and whatever tallies there are.
 */

const gauges = () => ({
  queued: p.bigint('string').defaultRaw('0'),
  /** Claimed and not leased yet, and the units of those. */
  claimed: p.bigint('string').defaultRaw('0'),
  reserved: p.bigint('string').defaultRaw('0'),
  /** Leased, which is both the jobs that run and the active leases, and the units of those. */
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

/** What one transaction has changed in one lane: by how much each gauge moved, and what is to be counted. */
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
    /** The slots of the durations that have ended; see `domain/stats/series.ts`. */
    waits: slots(),
    runs: slots(),
  },
});

/** What the gauges stand at, but for the tallies that are there still: of each submitter, and of all (`''`). */
export const StatTotal = defineEntity({
  name: 'StatTotal',
  tableName: 'stat_totals',
  properties: { addon_id: p.text().primary(), ...gauges() },
});

/**
 * What tallies of some minutes come to: of each submitter where anything happened, and of all (`''`) wherever a server
 * lived.
 */
export const StatRollup = defineEntity({
  name: 'StatRollup',
  tableName: 'stat_rollups',
  properties: {
    addon_id: p.text().primary(),
    /** How wide it is, in minutes. */
    level: p.smallint().primary(),
    /** When it begins. */
    bucket: p.datetime().primary(),
    /** The usable units when they were last looked at; only of all. */
    usable: p.bigint('string').nullable(),
    ...gauges(),
    ...counters(),
    wait_slots: slots(),
    wait_counts: counts(),
    run_slots: slots(),
    run_counts: counts(),
  },
});

/** One row: how far tallies have been added up, and when the totals were last compared with the jobs themselves. */
export const StatFold = defineEntity({
  name: 'StatFold',
  tableName: 'stat_fold',
  properties: {
    fold_id: p.smallint().primary().autoincrement(false),
    /** Of the transactions before this one no tally is left. */
    folded_before: p.bigint('string'),
    audited_at: p.datetime().nullable(),
  },
});

export const statEntities = [StatTally, StatTotal, StatRollup, StatFold];
