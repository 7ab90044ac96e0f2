/** The known workers: a route besides the contracts, with the queue contract's field names. */
import { parse } from '../../domain/requests/parsers.ts';
import { ListWorkers } from '../../domain/requests/stats.ts';
import type { Engine } from '../../engine/engine.ts';
import { fromQuery } from '../http/query.ts';
import type { Route } from '../http/router.ts';
import { workersAbout } from './docs.ts';
import { workerBody } from './schemas.ts';

export const workerListRoutes = ({ workers }: Engine): Route[] => [
  {
    method: 'GET',
    path: '/api/scheduler/workers',
    about: workersAbout.listWorkers,
    async handle({ query, caller }) {
      const command = fromQuery(ListWorkers, parse.listWorkers, query);
      const { items, nextCursor } = await workers.list(command, caller);
      return { status: 200, body: { workers: items.map(workerBody), next_cursor: nextCursor } };
    },
  },
];
