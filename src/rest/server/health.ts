import type { HealthMonitor } from '../../engine/maintenance/health-monitor.ts';
import type { Transport } from '../../transport/transport.ts';
import type { Route } from '../http/router.ts';
import { serverAbout } from './docs.ts';

/**
 * `/healthz` reports whether this process is alive: 200, and in the body whether its database answers.
 * `/readyz` reports whether it can serve. It returns 503 in three cases:
 * - the database does not answer;
 * - the schema is too new for this server to write, which is its `reason`;
 * - the server is shutting down.
 *
 * Both report the state of Redis where one is configured. Claims continue without Redis.
 */
export function healthRoutes(
  health: HealthMonitor,
  transport: Transport,
  isStopping: () => boolean,
): Route[] {
  const parts = (up: boolean) => ({
    database: up ? 'up' : 'down',
    ...(transport.state === 'none' ? {} : { redis: transport.state }),
  });
  return [
    {
      method: 'GET',
      path: '/healthz',
      about: serverAbout.getHealth,
      async handle() {
        return { status: 200, body: { status: 'ok', ...parts(await health.runOnce()) } };
      },
    },
    {
      method: 'GET',
      path: '/readyz',
      about: serverAbout.getReadiness,
      async handle() {
        const up = await health.runOnce();
        const { isReady, refusal } = health;
        const ready = isReady && !isStopping();
        const status = isStopping() ? 'stopping' : ready ? 'ready' : 'unavailable';
        const reason = refusal === undefined ? {} : { reason: refusal };
        return { status: ready ? 200 : 503, body: { status, ...parts(up), ...reason } };
      },
    },
  ];
}
