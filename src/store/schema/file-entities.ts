import { defineEntity, p } from '@mikro-orm/core';
import { contentionStateNumber } from '../../domain/files/contention-policy.ts';
import { fileLeaseStates } from '../../domain/files/file-lease.ts';
import type { JsonObject } from '../../domain/jobs/job.ts';

/** An owner of files: an agent's session. The row stays when its life ends, and its next life reuses it. */
const FileOwner = defineEntity({
  name: 'FileOwner',
  tableName: 'file_owners',
  indexes: [{ name: 'file_owners_due', properties: ['check_at'], where: { check_at: { $ne: null } } }],
  properties: {
    owner_id: p.text().primary(),
    agent: p.text().nullable(),
    host: p.text().nullable(),
    pid: p.integer().nullable(),
    branch: p.text().nullable(),
    /** The owner that this one works for: a sub-agent borrows its parent's files. */
    parent_owner_id: p.text().nullable(),
    state: p.smallint(),
    /** When its current life began. */
    born_at: p.datetime(),
    last_heartbeat_at: p.datetime(),
    last_activity_at: p.datetime(),
    /** Every heartbeat moves it, so it is in no index; `check_at` follows it once per TTL. */
    expires_at: p.datetime(),
    stopped_at: p.datetime().nullable(),
    /** When it loses its files as idle, unless it is active before. */
    idle_at: p.datetime().nullable(),
    ended_at: p.datetime().nullable(),
    /** `file_losses` may have losses to report to it. */
    has_losses: p.boolean(),
    /**
     * When the reaper has to check it: a time before which it can neither die nor be idle. Null after its
     * end.
     */
    check_at: p.datetime().nullable(),
    /** The credential that began its current life; see `domain/access/holder.ts`. */
    holder: p.integer().nullable(),
  },
});

const heldNumber = fileLeaseStates.indexOf('HELD');

/** A file that an owner requested at least once, and its current or last lease. */
const FileLeaseRow = defineEntity({
  name: 'FileLeaseRow',
  tableName: 'file_leases',
  indexes: [
    { name: 'file_leases_owner', properties: ['owner_id', 'fence'], where: { state: heldNumber } },
    { name: 'file_leases_repository', properties: ['repository', 'fence'], where: { state: heldNumber } },
    { name: 'file_leases_held', properties: ['fence'], where: { state: heldNumber } },
  ],
  properties: {
    /** A digest of the repository and the path, which together would be too long for an index. */
    file_id: p.uuid().primary(),
    repository: p.text(),
    path: p.text(),
    /** Null if it was never leased. */
    state: p.smallint().nullable(),
    owner_id: p.text().nullable(),
    acquired_at: p.datetime().nullable(),
    fence: p.bigint('string').nullable(),
    ended_at: p.datetime().nullable(),
    end_reason: p.text().nullable(),
    /**
     * The owners that the lease returns to: each lent it to the next, the last of them to the current owner.
     */
    lenders: p.array().columnType('text[]').nullable(),
    /** When the first of them lent it. A lender that has begun a new life since gets nothing back. */
    lent_at: p.datetime().nullable(),
  },
});

/** A file that an owner was denied. Rows of one request share their id and their times. */
const FileContention = defineEntity({
  name: 'FileContention',
  tableName: 'file_contentions',
  indexes: [
    {
      name: 'file_contentions_listed',
      properties: ['contention_id'],
      where: { state: { $lt: contentionStateNumber('GRANTED') } },
    },
    { name: 'file_contentions_due', properties: ['check_at'], where: { check_at: { $ne: null } } },
  ],
  uniques: [
    { name: 'file_contentions_open', properties: ['owner_id', 'file_id'], where: { closed_at: null } },
  ],
  properties: {
    contention_id: p.uuid().primary(),
    file_id: p.uuid().primary(),
    owner_id: p.text(),
    repository: p.text(),
    path: p.text(),
    state: p.smallint(),
    denied_at: p.datetime(),
    /** 180 seconds after the denial. Never moved. */
    retry_at: p.datetime(),
    retried_at: p.datetime().nullable(),
    halted_at: p.datetime().nullable(),
    closed_at: p.datetime().nullable(),
    /** The holder of the file at the denial, and since when. */
    blocker_id: p.text(),
    blocker_acquired_at: p.datetime(),
    /** The holder at the last evaluation of the retry. */
    blocker_now_id: p.text().nullable(),
    blocker_now_acquired_at: p.datetime().nullable(),
    /**
     * An operator's decision while the owner was not alive; applied at its next request. Null if none waits.
     */
    kept_instruction: p.smallint().nullable(),
    instructed_at: p.datetime().nullable(),
    instructed_by: p.text().nullable(),
    instruction_reason: p.text().nullable(),
    /** When the reaper has to check it: when the retry is due, and then when it lapses. */
    check_at: p.datetime().nullable(),
  },
});

/** A file that an operator took from an owner, until the owner requests it again or its life ends. */
const FileLoss = defineEntity({
  name: 'FileLoss',
  tableName: 'file_losses',
  properties: {
    owner_id: p.text().primary(),
    file_id: p.uuid().primary(),
    repository: p.text(),
    path: p.text(),
    fence: p.bigint('string'),
    lost_at: p.datetime(),
    reason: p.text(),
  },
});

/** Append-only events of files and owners, each written in the transaction of the change. */
const FileEventRow = defineEntity({
  name: 'FileEventRow',
  tableName: 'file_events',
  properties: {
    /**
     * The transaction that wrote it. A watch reads only events that no earlier transaction can still add to.
     */
    txid: p.bigint('string').primary(),
    event_id: p.bigint('string').primary().autoincrement(),
    at: p.datetime(),
    type: p.smallint(),
    owner_id: p.text(),
    repository: p.text().nullable(),
    path: p.text().nullable(),
    fence: p.bigint('string').nullable(),
    contention_id: p.uuid().nullable(),
    /** The owner, operator or server service that caused the event. */
    actor: p.text(),
    data: p.json<JsonObject>().nullable(),
  },
});

export const fileEntities = [FileOwner, FileLeaseRow, FileContention, FileLoss, FileEventRow];
