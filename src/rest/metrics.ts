import type { Health } from '../engine/health.ts';
import type { Transport } from '../transport/transport.ts';
import type { Route } from './router.ts';
import { serverAbout } from './server-about.ts';

/** One gauge, in the text format of Prometheus. */
const gauge = (name: string, about: string, value: number): string =>
  `# HELP ${name} ${about}\n# TYPE ${name} gauge\n${name} ${value}\n`;

/** `/metrics`: what a Prometheus reads. */
export const metricsRoutes = (health: Health, transport: Transport): Route[] => [
  {
    method: 'GET',
    path: '/metrics',
    about: serverAbout.getMetrics,
    async handle() {
      const gauges = [
        gauge('leasehold_database_up', 'Whether the database answers.', Number(await health.runOnce())),
        ...(transport.state === 'none'
          ? []
          : [gauge('leasehold_redis_up', 'Whether Redis answers.', Number(transport.state === 'up'))]),
      ];
      return {
        status: 200,
        headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        body: gauges.join(''),
      };
    },
  },
];
