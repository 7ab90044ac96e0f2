/**
 * The capacity: told, changed, and proved.
 *
 * What is used is counted in one locked row by every grant and every end of a lease. While started it is compared every
 * `auditMs` with the sum over the active leases, as one snapshot sees both; a difference, which only a mistake or
 * somebody's own hand in the database can make, is repaired under the lock and told in the log. Jobs that were put aside
 * because they cost more than all there is come back into line when that has changed.
 */
import { capacityOf } from '../domain/capacity.ts';
import type { SetCapacity } from '../domain/commands.ts';
import { invalid } from '../domain/errors.ts';
import type { Capacity } from '../domain/lease.ts';
import type { Log } from '../log.ts';
import { unparkJobs } from '../store/statements/candidates.ts';
import {
  auditCapacity,
  lockCapacity,
  readCapacity,
  reservedNow,
  setCapacity,
  takeUnits,
} from '../store/statements/capacity.ts';
import { streamsOf } from '../store/statements/streams.ts';
import type { RoundMeter } from '../telemetry/meters.ts';
import type { Caller, EngineContext } from './context.ts';
import type { Service } from './service.ts';
import { workOf } from './work.ts';

const auditMs = 60_000;
/** Jobs that come back into line in one transaction. */
const unparkMax = 1_000;

export class CapacityKeeper implements Service {
  readonly #context: EngineContext;
  readonly #log: Log;
  readonly #rounds: RoundMeter;
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<unknown> | undefined;

  constructor(context: EngineContext, log: Log) {
    this.#context = context;
    this.#log = log;
    this.#rounds = context.metrics.round('capacity_audit');
  }

  async get({ signal }: Caller): Promise<Capacity> {
    const { database, settings } = this.#context;
    const facts = await readCapacity(database, settings.capacityTotal, signal);
    return capacityOf({ ...facts, reserved: await reservedNow(database, signal) });
  }

  async set(command: SetCapacity, caller: Caller): Promise<Capacity> {
    const total = command.total ?? null;
    const busyRating = command.busy_rating ?? null;
    if (total === null && busyRating === null) throw invalid('total', 'is required, or busy_rating');
    const { database, waker } = this.#context;
    await setCapacity(database, total, busyRating);
    await this.#unpark();
    // How many jobs there is room for now is not known; whoever gets one wakes the next.
    waker.publishWork(workOf([], 1));
    return this.get(caller);
  }

  start(): void {
    if (this.#timer) return;
    const audit = () => {
      this.#round = this.#rounds
        .time(() => this.runOnce())
        .catch((error: unknown) => this.#log.warn('the capacity could not be audited', { error }));
    };
    audit();
    this.#timer = setInterval(audit, auditMs);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#round;
  }

  /** Compares, and repairs if need be; answers by how much too many units were counted. */
  async runOnce(): Promise<number> {
    const { database, waker } = this.#context;
    await this.#unpark();
    const seen = await auditCapacity(database);
    if (seen.used === seen.leased) return 0;
    // Under the lock nobody can change either side, so that what is repaired is what was wrong.
    const excess = await database.transaction(async (sql) => {
      await lockCapacity(sql, this.#context.settings.capacityTotal);
      const { used, leased } = await auditCapacity(sql);
      await takeUnits(sql, leased - used);
      return used - leased;
    });
    if (excess !== 0) {
      this.#log.error('the capacity in use was miscounted, and has been repaired', { excess });
      waker.publishWork(workOf([], 1));
    }
    return excess;
  }

  async #unpark(): Promise<void> {
    const { database, settings, waker } = this.#context;
    const { total } = await readCapacity(database, settings.capacityTotal);
    for (;;) {
      const jobIds = await unparkJobs(database, total, unparkMax);
      waker.publishWork(workOf(await streamsOf(database, jobIds)));
      waker.publishJobs(jobIds);
      if (jobIds.length < unparkMax) return;
    }
  }
}
