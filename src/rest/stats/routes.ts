/** The queue contract's Stats API, `/api/scheduler/stats`. */

import { parse } from '../../domain/requests/parsers.ts';
import { ListCapacityChanges } from '../../domain/requests/scheduler.ts';
import { GetSnapshot, GetTimeseries } from '../../domain/requests/stats.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { Route } from '../http/router.ts';
import { statsAbout } from './docs.ts';
import { capacityChange, snapshotBody, timeseriesBody, units } from './schemas.ts';

const base = '/api/scheduler/stats';

export const statsRoutes = (engine: Engine): Route[] => [...capacityRoutes(engine), ...figureRoutes(engine)];

function capacityRoutes({ capacity }: Engine): Route[] {
  const path = `${base}/capacity`;
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
      method: 'GET',
      path: `${path}/changes`,
      about: statsAbout.listCapacityChanges,
      async handle({ query, caller }) {
        const command = fromQuery(ListCapacityChanges, parse.listCapacityChanges, query);
        const { items, nextCursor } = await capacity.changes(command, caller);
        return { status: 200, body: { changes: items.map(capacityChange), next_cursor: nextCursor } };
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

const figureRoutes = ({ stats }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/snapshot`,
    about: statsAbout.getSnapshot,
    async handle({ query, caller }) {
      const command = fromQuery(GetSnapshot, parse.getSnapshot, query);
      return { status: 200, body: snapshotBody(await stats.snapshot(command, caller)) };
    },
  },
  {
    method: 'GET',
    path: `${base}/timeseries`,
    about: statsAbout.getTimeseries,
    async handle({ query, caller }) {
      const command = fromQuery(GetTimeseries, parse.getTimeseries, query);
      return { status: 200, body: timeseriesBody(await stats.timeseries(command, caller)) };
    },
  },
];
