/** Sets and lists the quotas of tenants. Each change is in the audit, in the same transaction. */
import { hasLimit, type Quota, type TenantUse } from '../../domain/access/quota.ts';
import { DomainError } from '../../domain/errors.ts';
import type { SetQuota } from '../../domain/requests/quotas.ts';
import type { Database } from '../../store/database.ts';
import { recordAudit } from '../../store/sql/access/audit.ts';
import {
  countOtherQuotas,
  deleteQuota,
  readQuotas,
  readUse,
  writeQuota,
} from '../../store/sql/quotas/quotas.ts';
import { audited, detailOf } from '../access/audit/audited.ts';
import type { Caller } from '../context/engine-context.ts';

/** Tenants with a quota, because servers keep all quotas in memory. */
const quotasMax = 10_000;

export interface QuotaWithUse {
  quota: Quota;
  use: TenantUse;
}

export class QuotaService {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Replaces the limits of a tenant. Without any limit its quota is removed, and the answer is null. */
  async set(command: SetQuota, caller: Caller): Promise<QuotaWithUse | null> {
    const { addon_id: addonId } = command;
    const limits = {
      maxUnits: command.max_units ?? null,
      maxQueued: command.max_queued ?? null,
      maxPayloadBytes: command.max_payload_bytes ?? null,
    };
    await this.#database.transaction(async (sql) => {
      if (!hasLimit(limits)) {
        if (await deleteQuota(sql, addonId))
          await recordAudit(sql, audited(caller, { action: 'quotas.unset', target: addonId }));
        return;
      }
      if ((await countOtherQuotas(sql, addonId)) >= quotasMax)
        throw new DomainError('quota_exceeded', `${quotasMax} tenants have a quota already`);
      await writeQuota(sql, addonId, limits, caller.principal.name);
      const detail = detailOf({
        max_units: limits.maxUnits,
        max_queued: limits.maxQueued,
        max_payload_bytes: limits.maxPayloadBytes,
      });
      await recordAudit(sql, audited(caller, { action: 'quotas.set', target: addonId, detail }));
    }, caller.signal);
    const found = await this.list(caller);
    return found.find(({ quota }) => quota.addonId === addonId) ?? null;
  }

  /** All quotas with what is used of them, in the order of their tenants. */
  async list({ signal }: Caller): Promise<QuotaWithUse[]> {
    const quotas = await readQuotas(this.#database, signal);
    if (quotas.length === 0) return [];
    const uses = await readUse(
      this.#database,
      quotas.map(({ addonId }) => addonId),
      signal,
    );
    return quotas.map((quota) => ({ quota, use: uses.get(quota.addonId) ?? { units: 0, queued: 0 } }));
  }
}
