/** The queue contract's Stats API, `/api/scheduler/stats`. */
import type { Capacity } from '../domain/lease.ts';
import { parse } from '../domain/parsers.ts';
import type { Snapshot, Timeseries } from '../domain/stats.ts';
import { iso } from '../domain/times.ts';
import type { Engine } from '../engine/engine.ts';
import type { Route } from './router.ts';

const base = '/api/scheduler/stats';

export const statsRoutes = (engine: Engine): Route[] => [...capacityRoutes(engine), ...figureRoutes(engine)];

function capacityRoutes({ capacity }: Engine): Route[] {
  const path = `${base}/capacity`;
  return [
    {
      method: 'GET',
      path,
      async handle({ caller }) {
        return { status: 200, body: units(await capacity.get(caller)) };
      },
    },
    {
      method: 'PUT',
      path,
      async handle({ body, caller }) {
        return { status: 200, body: units(await capacity.set(parse.setCapacity(body), caller)) };
      },
    },
  ];
}

const figureRoutes = ({ statsReader }: Engine): Route[] => [
  {
    method: 'GET',
    path: `${base}/snapshot`,
    async handle({ query, caller }) {
      const command = parse.getSnapshot(wordsIn(query));
      return { status: 200, body: snapshotBody(await statsReader.snapshot(command, caller)) };
    },
  },
  {
    method: 'GET',
    path: `${base}/timeseries`,
    async handle({ query, caller }) {
      const command = parse.getTimeseries(wordsIn(query));
      return { status: 200, body: timeseriesBody(await statsReader.timeseries(command, caller)) };
    },
  },
];

/** What is left empty is not asked for. */
const wordsIn = (query: URLSearchParams): object =>
  Object.fromEntries([...query].filter(([, value]) => value !== ''));

const units = ({ total, busyRating, usable, used, available, reserved }: Capacity) => ({
  total,
  busy_rating: busyRating,
  usable,
  used,
  available,
  reserved,
});

const snapshotBody = ({ tsMs, addonId, capacity, jobs, leases, last24h }: Snapshot) => ({
  ts: iso(tsMs),
  addon_id: addonId,
  capacity: units(capacity),
  jobs: {
    queued: jobs.queued,
    claimed: jobs.claimed,
    running: jobs.running,
    submitted_last_24h: last24h.submitted,
    done_last_24h: last24h.done,
    failed_last_24h: last24h.failed,
    canceled_last_24h: last24h.canceled,
    timeout_last_24h: last24h.timeouts,
  },
  leases: {
    active: leases.active,
    granted_last_24h: last24h.granted,
    expired_last_24h: last24h.expired,
  },
});

const timeseriesBody = ({ metric, bucket, addonId, points }: Timeseries) => ({
  metric,
  bucket,
  addon_id: addonId,
  points: points.map(({ tsMs, value }) => ({ ts: iso(tsMs), value })),
});
