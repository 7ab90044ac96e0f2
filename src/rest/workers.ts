/** The workers that servers know, beside the contracts, in the queue contract's words. */
import { parse } from '../domain/parsers.ts';
import { ListWorkers } from '../domain/stats-commands.ts';
import type { Engine } from '../engine/engine.ts';
import { fromQuery } from './query.ts';
import type { Route } from './router.ts';
import { workersAbout } from './workers-about.ts';
import { workerBody } from './workers-words.ts';

export const workerListRoutes = ({ workerReader }: Engine): Route[] => [
  {
    method: 'GET',
    path: '/api/scheduler/workers',
    about: workersAbout.listWorkers,
    async handle({ query, caller }) {
      const command = fromQuery(ListWorkers, parse.listWorkers, query);
      const { items, nextCursor } = await workerReader.list(command, caller);
      return { status: 200, body: { workers: items.map(workerBody), next_cursor: nextCursor } };
    },
  },
];
