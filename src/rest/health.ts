import type { Health } from '../engine/health.ts';
import type { Route } from './router.ts';

/**
 * `/healthz` says whether this process lives: 200, and in the body whether its database answers. `/readyz` says
 * whether it can serve: 503 while the database does not answer, or once it is shutting down.
 */
export function healthRoutes(health: Health, isStopping: () => boolean): Route[] {
  const database = (up: boolean) => (up ? 'up' : 'down');
  return [
    {
      method: 'GET',
      path: '/healthz',
      async handle() {
        return { status: 200, body: { status: 'ok', database: database(await health.runOnce()) } };
      },
    },
    {
      method: 'GET',
      path: '/readyz',
      async handle() {
        const up = await health.runOnce();
        const ready = up && !isStopping();
        const status = isStopping() ? 'stopping' : ready ? 'ready' : 'unavailable';
        return { status: ready ? 200 : 503, body: { status, database: database(up) } };
      },
    },
  ];
}
