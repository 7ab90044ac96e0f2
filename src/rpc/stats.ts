import { create } from '@bufbuild/protobuf';
import {
  type Capacity as CapacityMessage,
  CapacitySchema,
  type Snapshot as SnapshotMessage,
  SnapshotSchema,
  type StatsService,
} from '../../gen/leasehold/v1/stats_pb.js';
import type { Capacity } from '../domain/lease.ts';
import { parse } from '../domain/parsers.ts';
import type { Snapshot } from '../domain/stats.ts';
import type { Doctor } from '../engine/doctor.ts';
import type { Engine } from '../engine/engine.ts';
import { diagnoseMethods } from './diagnose.ts';
import { explainMethods } from './explain.ts';
import type { Implementation } from './implementation.ts';
import { timestamp } from './words.ts';

/** StatsService: proto in, one engine call, proto out. */
export function statsImplementation(engine: Engine, doctor: Doctor): Implementation<typeof StatsService> {
  const { capacity, statsReader } = engine;
  return {
    ...explainMethods(engine),
    ...diagnoseMethods(doctor),

    async getCapacity(_request, caller) {
      return { capacity: capacityMessage(await capacity.get(caller)) };
    },

    async setCapacity({ total, busyRating }, caller) {
      const command = parse.setCapacity({ total, busy_rating: busyRating });
      return { capacity: capacityMessage(await capacity.set(command, caller)) };
    },

    async getSnapshot({ addonId }, caller) {
      const command = parse.getSnapshot({ addon_id: addonId });
      return { snapshot: snapshotMessage(await statsReader.snapshot(command, caller)) };
    },

    async getTimeseries(request, caller) {
      const command = parse.getTimeseries({
        metric: request.metric,
        bucket: request.bucket,
        range: request.range,
        addon_id: request.addonId,
      });
      const { metric, bucket, addonId, points } = await statsReader.timeseries(command, caller);
      return {
        metric,
        bucket,
        addonId: addonId ?? undefined,
        points: points.map(({ tsMs, value }) => ({ ts: timestamp(tsMs), value: value ?? undefined })),
      };
    },

    async *watchSnapshots({ addonId, intervalMs }, caller) {
      const command = parse.watchSnapshots({ addon_id: addonId, interval_ms: intervalMs });
      for await (const snapshot of statsReader.watch(command, caller)) {
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
