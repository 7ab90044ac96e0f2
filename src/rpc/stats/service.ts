import { create } from '@bufbuild/protobuf';
import {
  type CapacityChange as CapacityChangeMessage,
  CapacityChangeSchema,
  type Capacity as CapacityMessage,
  CapacitySchema,
  type Snapshot as SnapshotMessage,
  SnapshotSchema,
  type StatsService,
} from '../../../gen/leasehold/v1/stats_pb.js';
import type { CapacityChange } from '../../domain/leases/capacity.ts';
import type { Capacity } from '../../domain/leases/lease.ts';
import { parse } from '../../domain/requests/parsers.ts';
import type { Snapshot } from '../../domain/stats/series.ts';
import type { Doctor } from '../../engine/doctor/doctor.ts';
import type { Engine } from '../../engine/engine.ts';
import { diagnoseMethods } from '../doctor/service.ts';
import { explainMethods } from '../explain/service.ts';
import type { Implementation } from '../implementation.ts';
import { timestamp } from '../jobs/convert.ts';
import { queueMethods } from '../queue/service.ts';
import { workerMethods } from '../workers/service.ts';

/** StatsService: proto in, one engine call, proto out. */
export function statsImplementation(engine: Engine, doctor: Doctor): Implementation<typeof StatsService> {
  const { capacity, stats } = engine;
  return {
    ...explainMethods(engine),
    ...diagnoseMethods(doctor),
    ...workerMethods(engine),
    ...queueMethods(engine),

    async getCapacity(_request, caller) {
      return { capacity: capacityMessage(await capacity.get(caller)) };
    },

    async setCapacity({ total, busyRating, reason, requestedBy }, caller) {
      const command = parse.setCapacity({
        total,
        busy_rating: busyRating,
        reason,
        requested_by: requestedBy,
      });
      return { capacity: capacityMessage(await capacity.set(command, caller)) };
    },

    async listCapacityChanges({ limit, cursor }, caller) {
      const command = parse.listCapacityChanges({ limit, cursor });
      const { items, nextCursor } = await capacity.changes(command, caller);
      return { changes: items.map(changeMessage), nextCursor: nextCursor ?? undefined };
    },

    async getSnapshot({ addonId }, caller) {
      const command = parse.getSnapshot({ addon_id: addonId });
      return { snapshot: snapshotMessage(await stats.snapshot(command, caller)) };
    },

    async getTimeseries(request, caller) {
      const command = parse.getTimeseries({
        metric: request.metric,
        bucket: request.bucket,
        range: request.range,
        addon_id: request.addonId,
      });
      const { metric, bucket, addonId, points } = await stats.timeseries(command, caller);
      return {
        metric,
        bucket,
        addonId: addonId ?? undefined,
        points: points.map(({ tsMs, value }) => ({ ts: timestamp(tsMs), value: value ?? undefined })),
      };
    },

    async *watchSnapshots({ addonId, intervalMs }, caller) {
      const command = parse.watchSnapshots({ addon_id: addonId, interval_ms: intervalMs });
      for await (const snapshot of stats.watch(command, caller)) {
        yield { snapshot: snapshotMessage(snapshot) };
      }
    },
  };
}

const capacityMessage = ({
  total,
  busyRating,
  usable,
  used,
  available,
  reserved,
}: Capacity): CapacityMessage =>
  create(CapacitySchema, {
    total,
    busyRating,
    usable,
    used: BigInt(used),
    available: BigInt(available),
    reserved: BigInt(reserved),
  });

const changeMessage = (change: CapacityChange): CapacityChangeMessage =>
  create(CapacityChangeSchema, {
    changeId: BigInt(change.changeId),
    ts: timestamp(change.atMs),
    requestedBy: change.requestedBy,
    reason: change.reason ?? undefined,
    totalBefore: change.before.total,
    totalAfter: change.after.total,
    busyRatingBefore: change.before.busyRating,
    busyRatingAfter: change.after.busyRating,
  });

const snapshotMessage = ({ tsMs, addonId, capacity, jobs, leases, last24h }: Snapshot): SnapshotMessage =>
  create(SnapshotSchema, {
    ts: timestamp(tsMs),
    addonId: addonId ?? undefined,
    capacity: capacityMessage(capacity),
    jobs: {
      queued: BigInt(jobs.queued),
      claimed: BigInt(jobs.claimed),
      running: BigInt(jobs.running),
      submittedLast24h: BigInt(last24h.submitted),
      doneLast24h: BigInt(last24h.done),
      failedLast24h: BigInt(last24h.failed),
      canceledLast24h: BigInt(last24h.canceled),
      timeoutLast24h: BigInt(last24h.timeouts),
    },
    leases: {
      active: BigInt(leases.active),
      grantedLast24h: BigInt(last24h.granted),
      expiredLast24h: BigInt(last24h.expired),
    },
  });
