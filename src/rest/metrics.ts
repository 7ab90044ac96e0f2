import type { ServerFigures } from '../telemetry/server-figures.ts';
import type { Route } from './router.ts';
import { serverAbout } from './server-about.ts';

/** `/metrics`: what a Prometheus reads. */
export const metricsRoutes = (figures: ServerFigures): Route[] => [
  {
    method: 'GET',
    path: '/metrics',
    about: serverAbout.getMetrics,
    async handle() {
      return {
        status: 200,
        headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        body: await figures.tell(),
      };
    },
  },
];
