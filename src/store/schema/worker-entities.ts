import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { WorkerRequest } from '../../domain/workers/worker.ts';

/**
 * A worker as known to one server, which writes the row every few seconds. The row is invalid after
 * `expires_at`. The table is unlogged: rows that a crash of the database loses are written again within
 * seconds.
 */
export const WorkerRow = defineEntity({
  name: 'WorkerRow',
  tableName: 'workers',
  properties: {
    worker_id: p.text().primary(),
    /** New at each start of a server. */
    server_id: p.uuid().primary(),
    server_host: p.text(),
    server_pid: p.integer(),
    peer: p.text(),
    work_streams: p.integer(),
    heartbeat_streams: p.integer(),
    waiting_calls: p.integer(),
    since: p.datetime(),
    last_heard_at: p.datetime(),
    asks: p.json().$type<WorkerRequest[]>(),
    asks_cut: p.boolean(),
    /** In no index, so that updates are heap-only. */
    expires_at: p.datetime(),
  },
});
export type WorkerRecord = InferEntity<typeof WorkerRow>;

export const workerEntities = [WorkerRow];
