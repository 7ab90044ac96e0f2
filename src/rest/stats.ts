/** The queue contract's Stats API, `/api/scheduler/stats`. */
import { parse } from '../domain/parsers.ts';
import type { Engine } from '../engine/engine.ts';
import type { Route } from './router.ts';
import { statsAbout } from './stats-about.ts';
import { units } from './stats-words.ts';

export function statsRoutes({ capacity }: Engine): Route[] {
  const path = '/api/scheduler/stats/capacity';
  return [
    {
      method: 'GET',
      path,
      about: statsAbout.getCapacity,
      async handle({ caller }) {
        return { status: 200, body: units(await capacity.get(caller)) };
      },
    },
    {
      method: 'PUT',
      path,
      about: statsAbout.setCapacity,
      async handle({ body, caller }) {
        return { status: 200, body: units(await capacity.set(parse.setCapacity(body), caller)) };
      },
    },
  ];
}
