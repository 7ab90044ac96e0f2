import type { ServerGauges } from '../../telemetry/gauges/server-gauges.ts';
import type { Route } from '../http/router.ts';
import { serverAbout } from './docs.ts';

/** `/metrics` for Prometheus. */
export const metricsRoutes = (figures: ServerGauges): Route[] => [
  {
    method: 'GET',
    path: '/metrics',
    about: serverAbout.getMetrics,
    async handle() {
      return {
        status: 200,
        headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        body: await figures.collect(),
      };
    },
  },
];
