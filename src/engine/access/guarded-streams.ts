/** What the streams use of the engine, limited to the principal of the stream. */
import { holderOf } from '../../domain/access/holder.ts';
import type { Principal } from '../../domain/access/principal.ts';
import { matches } from '../../domain/access/scopes.ts';
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

/** Calls `run` with the items that are allowed, and puts the refusal in the place of each other one. */
async function onlyAllowed<Item, Answer>(
  items: readonly Item[],
  isAllowed: (item: Item) => boolean,
  refusal: Answer,
  run: (allowed: readonly Item[]) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  if (items.every(isAllowed)) return run(items);
  const answers = await run(items.filter(isAllowed));
  let next = 0;
  return items.map((item) => (isAllowed(item) ? (answers[next++] as Answer) : refusal));
}

/**
 * The leases of a stream. A heartbeat under a name that the credential may not use is answered like one of
 * another worker, and costs no statement; the token of the lease takes the place of the name. The scopes
 * limit what is fetched; a lease that was granted may be kept and released whatever the scopes are.
 */
function leasesFor<Leases extends Partial<StreamLeases>>(leases: Leases, principal: Principal): Leases {
  const holder = holderOf(principal);
  const mayActAs = ({ workerId, token }: { workerId: string; token: string | null }) =>
    token !== null || matches(principal.workerIds, workerId);
  const { heartbeatEach, fetch, endEach } = leases;
  const guarded: Partial<StreamLeases> = {};
  if (heartbeatEach)
    guarded.heartbeatEach = (heartbeats, signal) =>
      onlyAllowed<(typeof heartbeats)[number], Verdict | Promise<Verdict>>(
        heartbeats,
        mayActAs,
        wrongWorker,
        (allowed) =>
          heartbeatEach(
            allowed.map((heartbeat) => ({ ...heartbeat, holder })),
            signal,
          ),
      );
  if (fetch)
    guarded.fetch = (request) => {
      requireWorker(principal, request.workerId, 'worker_id');
      const filter = restrictFilter(principal, request.filter);
      return fetch({ ...request, holder, filter, requestClass: requestClassOf(filter, request.ttlS) });
    };
  if (endEach)
    guarded.endEach = (releases) =>
      onlyAllowed<(typeof releases)[number], Awaited<ReturnType<typeof endEach>>[number]>(
        releases,
        mayActAs,
        denied('worker_id: the credential may not act under this name', 'worker_id'),
        (allowed) => endEach(allowed.map((release) => ({ ...release, holder }))),
      );
  return { ...leases, ...guarded };
}

/** Owners that the credential may not act as are answered like unknown ones. */
const filesFor = ({ heartbeatEach }: StreamFiles, principal: Principal): StreamFiles => ({
  heartbeatEach: async (owners, signal) => {
    const holder = holderOf(principal);
    const isAllowed = ({ ownerId }: (typeof owners)[number]) => matches(principal.workerIds, ownerId);
    const verdicts = await heartbeatEach(
      owners.filter(isAllowed).map(({ ownerId }) => ({ ownerId, holder })),
      signal,
    );
    let next = 0;
    return owners.map((owner) =>
      isAllowed(owner)
        ? (verdicts[next++] as (typeof verdicts)[number])
        : ({ kind: 'lost', code: 'owner_not_found', detail: 'there is no such owner' } as const),
    );
  },
});

interface StreamEngine {
  leases: Partial<StreamLeases>;
  files: StreamFiles;
  workers: Pick<Engine['workers'], 'open'>;
  readonly draining: boolean;
}

/** The engine of one stream. Without authentication that is the engine itself. */
export function streamEngineFor<Whole extends StreamEngine>(engine: Whole, principal: Principal): Whole {
  if (principal.kind === 'local') return engine;
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
