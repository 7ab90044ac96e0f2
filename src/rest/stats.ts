/** The queue contract's Stats API, `/api/scheduler/stats`. */
import type { Capacity } from '../domain/lease.ts';
import { parse } from '../domain/parsers.ts';
import type { Engine } from '../engine/engine.ts';
import type { Route } from './router.ts';

export function statsRoutes({ capacity }: Engine): Route[] {
  const path = '/api/scheduler/stats/capacity';
  return [
    {
      method: 'GET',
      path,
      async handle({ caller }) {
        return { status: 200, body: units(await capacity.get(caller)) };
      },
    },
    {
      method: 'PUT',
      path,
      async handle({ body, caller }) {
        return { status: 200, body: units(await capacity.set(parse.setCapacity(body), caller)) };
      },
    },
  ];
}

const units = ({ total, busyRating, usable, used, available, reserved }: Capacity) => ({
  total,
  busy_rating: busyRating,
  usable,
  used,
  available,
  reserved,
});
