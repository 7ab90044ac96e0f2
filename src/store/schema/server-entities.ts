import { defineEntity, p } from '@mikro-orm/core';

/** One row: the identity of this database for other systems. */
export const Identity = defineEntity({
  name: 'Identity',
  tableName: 'identity',
  properties: { identity_id: p.smallint().primary().autoincrement(false), database_id: p.uuid() },
});

/** One row: when a server was last alive. Each live server updates it, so that a joint outage is detected. */
const LastAlive = defineEntity({
  name: 'LastAlive',
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
const SchemaCompatibility = defineEntity({
  name: 'SchemaCompatibility',
  tableName: 'schema_compatibility',
  properties: {
    migration: p.text().primary(),
    oldest_writer: p.text(),
    recorded_at: p.datetime().defaultRaw('clock_timestamp()'),
  },
});

export const serverEntities = [Identity, LastAlive, Outage, PruneWalk, SchemaCompatibility];
