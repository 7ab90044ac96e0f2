import type { Caller } from '../../engine/context/engine-context.ts';
import type { HealthMonitor } from '../../engine/maintenance/health-monitor.ts';
import type { Transport } from '../../transport/transport.ts';
import type { Route } from '../http/router.ts';
import { serverAbout } from './docs.ts';

/** A caller without a credential learns only whether the server is ready. */
const isKnown = ({ principal }: Caller): boolean => principal.kind === 'local';

/**
 * `/healthz` reports whether this process is alive: 200, and in the body whether its database answers.
 * `/readyz` reports whether it can serve. It returns 503 in three cases:
 * - the database does not answer;
 * - the schema is too new for this server to write, which is its `reason`;
 * - the server is shutting down.
 *
 * Both report the state of Redis where one is configured. Claims continue without Redis. A server with
 * authentication answers with the status alone, because these routes need no credential.
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
      async handle({ caller }) {
        const up = await health.runOnce();
        return { status: 200, body: { status: 'ok', ...(isKnown(caller) ? parts(up) : {}) } };
      },
    },
    {
      method: 'GET',
      path: '/readyz',
      about: serverAbout.getReadiness,
      async handle({ caller }) {
        const up = await health.runOnce();
        const { isReady, refusal } = health;
        const ready = isReady && !isStopping();
        const status = isStopping() ? 'stopping' : ready ? 'ready' : 'unavailable';
        const reason = refusal === undefined ? {} : { reason: refusal };
        const details = isKnown(caller) ? { ...parts(up), ...reason } : {};
        return { status: ready ? 200 : 503, body: { status, ...details } };
      },
    },
  ];
}
