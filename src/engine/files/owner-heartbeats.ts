/**
 * Extends the owners of files.
 *
 * Guarantees, as in `engine/leases/heartbeats.ts`:
 * - The verdict 'extended' is given only after the commit that made it true.
 * - An owner that has died or ended is never extended.
 * - A locked row delays only its own owner.
 * - Files that an operator has taken from an owner are reported with every heartbeat, until the owner
 *   requests or releases them.
 */

import { holderOf, isHeldBy } from '../../domain/access/holder.ts';
import { DomainError } from '../../domain/errors.ts';
import type { OwnerHeartbeat, OwnerVerdict } from '../../domain/files/file-lease.ts';
import { notAlive, ownerNotFound, ownerTtlMs } from '../../domain/files/file-owners.ts';
import { limits } from '../../domain/limits.ts';
import { LockAwareBatcher, type RowLocked, rowLocked } from '../../lib/async/lock-aware-batcher.ts';
import { extendOwners, type OwnerExtensions } from '../../store/sql/files/extend-owners.ts';
import { readLosses } from '../../store/sql/files/losses.ts';
import { readOwners } from '../../store/sql/files/owners.ts';
import type { Counter } from '../../telemetry/registry.ts';
import { type Caller, type EngineContext, waitingMax } from '../context/engine-context.ts';

/** Maximum heartbeats of one statement. */
const heartbeatsMax = 2_000;
const concurrentStatementsMax = 2;
const minHeartbeatsWhenBusy = 500;

type OwnerBatchVerdict = OwnerVerdict | RowLocked;
export type Extended = Extract<OwnerVerdict, { kind: 'extended' }>;

export class OwnerHeartbeats {
  readonly #context: EngineContext;
  readonly #batcher: LockAwareBatcher<OwnerHeartbeat, OwnerVerdict>;
  readonly #counts: { extended: Counter; lost: Counter };

  constructor(context: EngineContext) {
    this.#context = context;
    this.#counts = context.metrics.heartbeats('owners');
    this.#batcher = new LockAwareBatcher<OwnerHeartbeat, OwnerVerdict>({
      flush: (heartbeats, wait, signal) => this.#extend(heartbeats, wait, signal),
      first: {
        meter: context.metrics.batch('heartbeat_owners'),
        sizeMax: heartbeatsMax,
        concurrencyMax: concurrentStatementsMax,
        minWeightWhenBusy: minHeartbeatsWhenBusy,
      },
      lockedMeter: context.metrics.batch('heartbeat_owners_held'),
      waitingMax,
    });
  }

  /** Extends one owner, or throws the DomainError with the reason. */
  async heartbeat(ownerId: string, { principal, signal }: Caller): Promise<Extended> {
    const verdict = await this.#batcher.run({ ownerId, holder: holderOf(principal) }, signal);
    if (verdict.kind === 'extended') return verdict;
    throw new DomainError(verdict.code, verdict.detail);
  }

  /** Extends many owners. Returns a verdict for each, in the order given; those on locked rows come later. */
  heartbeatEach(
    heartbeats: readonly OwnerHeartbeat[],
    signal?: AbortSignal,
  ): Promise<readonly (OwnerVerdict | Promise<OwnerVerdict>)[]> {
    return this.#batcher.runEach(heartbeats, signal);
  }

  close(): Promise<void> {
    return this.#batcher.close();
  }

  async #extend(
    heartbeats: readonly OwnerHeartbeat[],
    wait: boolean,
    signal: AbortSignal | undefined,
  ): Promise<OwnerBatchVerdict[]> {
    const { database, outageMonitor } = this.#context;
    // With `wait`, the verdict may be that the owner has ended. The database decides first whether an outage
    // rules that out.
    await (wait ? outageMonitor.runOnce() : outageMonitor.ensureFresh());
    // A statement writes a row once. An owner that is named twice is extended once, and gets the verdict
    // twice.
    const own = new Map(heartbeats.map((heartbeat) => [nameOf(heartbeat), heartbeat]));
    const kept = await extendOwners(database, [...own.values()], { wait, signal });
    const verdicts = await this.#explain([...own.values()], kept, wait, signal);
    const answers = heartbeats.map((heartbeat) => verdicts.get(nameOf(heartbeat)) as OwnerBatchVerdict);
    for (const verdict of answers) if (verdict !== rowLocked) this.#counts[verdict.kind].add();
    return answers;
  }

  async #explain(
    heartbeats: readonly OwnerHeartbeat[],
    { nowMs, results }: OwnerExtensions,
    waited: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Map<string, OwnerBatchVerdict>> {
    const { database } = this.#context;
    const names = heartbeats.map(({ ownerId }) => ownerId);
    const withLosses = names.filter((_, i) => results[i] === 'extended with losses');
    const unclear = names.filter((_, i) => results[i] === 'ended' || results[i] === 'not found');
    const losses =
      withLosses.length > 0
        ? await readLosses(database, withLosses, limits.lostFilesTold, signal)
        : undefined;
    const owners = unclear.length > 0 ? await readOwners(database, unclear, signal) : undefined;
    const verdicts = new Map<string, OwnerBatchVerdict>();
    for (const [i, heartbeat] of heartbeats.entries()) {
      const name = heartbeat.ownerId;
      if (results[i] === 'extended' || results[i] === 'extended with losses') {
        const expiresAtMs = nowMs + ownerTtlMs;
        const lostFiles = losses?.get(name) ?? [];
        const extended = { kind: 'extended', expiresAtMs, ttlRemainingMs: ownerTtlMs, lostFiles } as const;
        verdicts.set(nameOf(heartbeat), extended);
        continue;
      }
      const owner = owners?.get(name);
      const isOwn = owner !== undefined && isHeldBy(owner.holder, heartbeat.holder);
      // Another transaction has locked the row, or the reaper has not handled the death yet. Both are tried
      // once more.
      if (isOwn && owner.state === 'ALIVE' && !waited) verdicts.set(nameOf(heartbeat), rowLocked);
      else verdicts.set(nameOf(heartbeat), lost(isOwn ? notAlive(owner) : ownerNotFound(name)));
    }
    return verdicts;
  }
}

/** Another credential that uses the name of an owner has a heartbeat of its own. */
const nameOf = ({ ownerId, holder }: OwnerHeartbeat): string =>
  holder === null ? ownerId : `${holder} ${ownerId}`;

const lost = ({ code, detail }: DomainError): OwnerVerdict => ({ kind: 'lost', code, detail });
