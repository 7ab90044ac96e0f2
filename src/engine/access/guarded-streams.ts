/** What the streams use of the engine, limited to the principal of the stream. */
import type { Principal } from '../../domain/access/principal.ts';
import { matches, reachesAll, reachesAllJobs } from '../../domain/access/scopes.ts';
import type { Verdict } from '../../domain/leases/lease.ts';
import { wrongWorker } from '../../domain/leases/lease-policy.ts';
import { requestClassOf } from '../../domain/queue/claim-filter.ts';
import type { Engine } from '../engine.ts';
import { denied, requireWorker } from './access-control.ts';
import { restrictFilter } from './restrict-filter.ts';

type StreamLeases = Pick<
  Engine['leases'],
  'heartbeatEach' | 'verdictsOf' | 'subscribe' | 'fetch' | 'endEach'
>;
type StreamFiles = Pick<Engine['files'], 'heartbeatEach'>;

/** May act as every worker, on every job: the streams of such a principal need no check. */
const isUnlimited = ({ kind, scopes, workerIds }: Principal): boolean =>
  kind === 'local' || (reachesAllJobs(scopes) && reachesAll(workerIds));

/**
 * The leases of a stream. A heartbeat under a name that the credential may not use is answered like one of
 * another worker, and costs no statement. The scopes limit what is fetched; a lease that was granted may be
 * kept and released whatever the scopes are.
 */
function leasesFor<Leases extends Partial<StreamLeases>>(leases: Leases, principal: Principal): Leases {
  if (isUnlimited(principal)) return leases;
  const mayActAs = (workerId: string) => matches(principal.workerIds, workerId);
  const { heartbeatEach, fetch, endEach } = leases;
  const guarded: Partial<StreamLeases> = {};
  if (heartbeatEach)
    guarded.heartbeatEach = async (heartbeats, signal) => {
      if (heartbeats.every(({ workerId }) => mayActAs(workerId))) return heartbeatEach(heartbeats, signal);
      const verdicts = await heartbeatEach(
        heartbeats.filter(({ workerId }) => mayActAs(workerId)),
        signal,
      );
      let next = 0;
      return heartbeats.map(({ workerId }): Verdict | Promise<Verdict> =>
        mayActAs(workerId) ? (verdicts[next++] as Verdict | Promise<Verdict>) : wrongWorker,
      );
    };
  if (fetch)
    guarded.fetch = (request) => {
      requireWorker(principal, request.workerId, 'worker_id');
      const filter = restrictFilter(principal, request.filter);
      return fetch({ ...request, filter, requestClass: requestClassOf(filter, request.ttlS) });
    };
  if (endEach)
    guarded.endEach = async (releases) => {
      if (releases.every(({ workerId }) => mayActAs(workerId))) return endEach(releases);
      const ended = await endEach(releases.filter(({ workerId }) => mayActAs(workerId)));
      let next = 0;
      return releases.map(({ workerId }) =>
        mayActAs(workerId)
          ? (ended[next++] as (typeof ended)[number])
          : denied('worker_id: the credential may not act under this name', 'worker_id'),
      );
    };
  return { ...leases, ...guarded };
}

/** Owners that the credential may not act as are answered like unknown ones. */
function filesFor(files: StreamFiles, principal: Principal): StreamFiles {
  if (isUnlimited(principal)) return files;
  return {
    heartbeatEach: async (ownerIds, signal) => {
      const known = ownerIds.filter((ownerId) => matches(principal.workerIds, ownerId));
      const verdicts = await files.heartbeatEach(known, signal);
      let next = 0;
      return ownerIds.map((ownerId) => {
        if (matches(principal.workerIds, ownerId)) return verdicts[next++] as (typeof verdicts)[number];
        return { kind: 'lost' as const, code: 'owner_not_found' as const, detail: 'there is no such owner' };
      });
    },
  };
}

interface StreamEngine {
  leases: Partial<StreamLeases>;
  files: StreamFiles;
  workers: Pick<Engine['workers'], 'open'>;
  readonly draining: boolean;
}

/** The engine of one stream. */
export function streamEngineFor<Whole extends StreamEngine>(engine: Whole, principal: Principal): Whole {
  if (isUnlimited(principal)) return engine;
  const limited: StreamEngine = {
    leases: leasesFor(engine.leases, principal),
    files: filesFor(engine.files, principal),
    workers: engine.workers,
    get draining() {
      return engine.draining;
    },
  };
  return limited as Whole;
}
