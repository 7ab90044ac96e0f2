import { capacityOf, noJobs } from '../../domain/leases/capacity.ts';
import { dealJobs } from '../../domain/leases/lease-policy.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import { readCapacity } from '../../store/sql/leases/capacity.ts';
import { anyCandidate } from '../../store/sql/queue/candidates.ts';
import { type EngineContext, waitingMax } from '../context/engine-context.ts';
import { type AcquireCall, type Denied, denied } from './grant-batch.ts';

/** Calls of one look. Each kind is a question of its own. */
const callsMax = 100;
/** Looks at the same time: connections are for all. */
const looksAtOnce = 3;

/**
 * Looks whether there is anything to be had, so that those who come in vain, which most do while there is little to do,
 * lock nothing and hold up nobody. Calls of one kind that arrive together share a look, which begins after they came, so
 * that whoever has submitted a job finds it.
 */
export class Scout {
  readonly #context: Pick<EngineContext, 'database' | 'settings' | 'headMarks'>;
  readonly #batcher: Batcher<AcquireCall, Denied | 'promising'>;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#batcher = new Batcher<AcquireCall, Denied | 'promising'>({
      meter: context.metrics.batch('look_for_work'),
      flush: (calls, signal) => this.#look(calls, signal),
      sizeMax: callsMax,
      flightsMax: looksAtOnce,
      companionWeight: 1,
      waitingMax,
    });
  }

  /** Why there is nothing for this call, unless it is worth asking for. */
  look(call: AcquireCall, signal: AbortSignal | undefined): Promise<Denied | 'promising'> {
    return this.#batcher.run(call, signal);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #look(
    calls: readonly AcquireCall[],
    signal: AbortSignal | undefined,
  ): Promise<(Denied | 'promising')[]> {
    const { database, settings, headMarks } = this.#context;
    const capacity = capacityOf({
      ...(await readCapacity(database, settings.capacityTotal, signal)),
      reserved: 0,
    });
    const kinds = new Map<string, Denied | 'promising'>();
    for (const { kind, filter, workerId } of calls) {
      if (kinds.has(kind)) continue;
      const [full] = dealJobs([], [workerId], new Set(), capacity);
      if (full?.kind === 'deny') kinds.set(kind, denied(full.reason, { units: full.missing }));
      else if (await anyCandidate(database, filter, headMarks, signal)) kinds.set(kind, 'promising');
      else kinds.set(kind, denied(noJobs, { jobs: 1, barred: false }));
    }
    return calls.map(({ kind }) => kinds.get(kind) ?? 'promising');
  }
}
