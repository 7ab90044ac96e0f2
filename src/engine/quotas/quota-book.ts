/**
 * The quotas of all tenants, in memory, so that a tenant without a quota costs nothing.
 *
 * Guarantees: a change is in force on every server `refreshMs` after its commit. Each round reads the
 * revision of the keys and quotas; the quotas are read again only if it has changed. Without authentication
 * there are no quotas, because a caller then chooses its tenant freely.
 *
 * Lifecycle: `runOnce` reads the quotas before the server serves calls. `start` begins the rounds; `stop`
 * ends them.
 *
 * Failure modes: a failed round is logged, and the next follows after the usual pause. The known quotas stay
 * in force meanwhile.
 */
import type { Quota } from '../../domain/access/quota.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { readRevision } from '../../store/sql/access/keys.ts';
import { readQuotas } from '../../store/sql/quotas/quotas.ts';

const noTenants: readonly string[] = [];

export class QuotaBook implements Service {
  readonly #database: Database;
  readonly #refreshes: PeriodicTask;
  #quotas: ReadonlyMap<string, Quota> = new Map();
  #unitTenants: ReadonlySet<string> = new Set();
  #revision: string | undefined;

  constructor({ database, refreshMs, log }: { database: Database; refreshMs: number; log: Log }) {
    this.#database = database;
    this.#refreshes = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return refreshMs;
      },
      onFailed: (error) => log.warn('failed to refresh the quotas', { error }),
      failedMs: refreshMs,
    });
  }

  /** Most servers have no quotas: the first question of every path that knows them. */
  get isEmpty(): boolean {
    return this.#quotas.size === 0;
  }

  of(addonId: string): Quota | undefined {
    return this.#quotas.get(addonId);
  }

  /** The tenants with a quota of units whose jobs these filters may find. */
  unitTenantsOf(filters: readonly Pick<ClaimFilter, 'addonId'>[]): readonly string[] {
    if (this.#unitTenants.size === 0) return noTenants;
    if (filters.some(({ addonId }) => addonId === null)) return [...this.#unitTenants];
    return [...new Set(filters.flatMap(({ addonId }) => addonId ?? []))].filter((addonId) =>
      this.#unitTenants.has(addonId),
    );
  }

  start(): void {
    this.#refreshes.start();
  }

  stop(): Promise<void> {
    return this.#refreshes.stop();
  }

  async runOnce(): Promise<void> {
    // The revision is read first: a change between the two reads leads to one read too many, never to one too
    // few.
    const revision = await readRevision(this.#database);
    if (revision === this.#revision) return;
    const quotas = await readQuotas(this.#database);
    this.#quotas = new Map(quotas.map((quota) => [quota.addonId, quota]));
    this.#unitTenants = new Set(
      quotas.flatMap(({ addonId, maxUnits }) => (maxUnits === null ? [] : addonId)),
    );
    this.#revision = revision;
  }
}
