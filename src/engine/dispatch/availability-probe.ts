import { capacityOf, noJobs } from '../../domain/leases/capacity.ts';
import { denialIfFull } from '../../domain/leases/lease-policy.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { readCapacity } from '../../store/sql/leases/capacity.ts';
import { anyCandidate } from '../../store/sql/queue/candidates.ts';
import { type EngineContext, waitingMax } from '../context/engine-context.ts';
import { type AcquireCall, type Denied, denied } from './acquire-call.ts';

/** Calls of one batch. Each request class takes a query of its own. */
const callsMax = 100;
/** Batches that run at the same time; the pool's connections are shared with all other calls. */
const concurrentChecksMax = 3;

/**
 * Finds out whether a request could be granted, before it reaches the dispatcher. While there is little work,
 * most requests are denied. The probe denies them without a lock, so they block no other call. Requests of
 * one class that arrive together share a query. The query begins after they arrived, so a client that has
 * submitted a job finds it.
 */
export class AvailabilityProbe {
  readonly #context: Pick<EngineContext, 'database' | 'settings' | 'lowWaterMarks'>;
  readonly #batcher: Batcher<AcquireCall, Denied | 'promising'>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher<AcquireCall, Denied | 'promising'>({
      meter: context.metrics.batch('look_for_work'),
      flush: (calls, signal) => this.#checkBatch(calls, signal),
      sizeMax: callsMax,
      concurrencyMax: concurrentChecksMax,
      minWeightWhenBusy: 1,
      waitingMax,
    });
  }

  /** The denial of this call, or 'promising' if the dispatcher should try it. */
  check(call: AcquireCall, signal: AbortSignal | undefined): Promise<Denied | 'promising'> {
    return this.#batcher.run(call, signal);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #checkBatch(
    calls: readonly AcquireCall[],
    signal: AbortSignal | undefined,
  ): Promise<(Denied | 'promising')[]> {
    const { database, settings, lowWaterMarks } = this.#context;
    const capacity = capacityOf({
      ...(await readCapacity(database, settings.capacityTotal, signal)),
      reserved: 0,
    });
    const full = denialIfFull(capacity);
    if (full) {
      const denial = denied(full.reason, { units: full.missing });
      return calls.map(() => denial);
    }
    const results = new Map<string, Denied | 'promising'>();
    for (const { requestClass, filter } of calls) {
      if (results.has(requestClass)) continue;
      if (await anyCandidate(database, filter, lowWaterMarks, signal)) results.set(requestClass, 'promising');
      else results.set(requestClass, denied(noJobs, { jobs: 1, barred: false }));
    }
    return calls.map(({ requestClass }) => results.get(requestClass) ?? 'promising');
  }
}
