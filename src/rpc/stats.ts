import { create } from '@bufbuild/protobuf';
import {
  type Capacity as CapacityMessage,
  CapacitySchema,
  type StatsService,
} from '../../gen/leasehold/v1/stats_pb.js';
import type { Capacity } from '../domain/lease.ts';
import { parse } from '../domain/parsers.ts';
import type { Doctor } from '../engine/doctor.ts';
import type { Engine } from '../engine/engine.ts';
import { diagnoseMethods } from './diagnose.ts';
import { explainMethods } from './explain.ts';
import type { Implementation } from './implementation.ts';

/** StatsService: proto in, one engine call, proto out. */
export function statsImplementation(engine: Engine, doctor: Doctor): Implementation<typeof StatsService> {
  const { capacity } = engine;
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
