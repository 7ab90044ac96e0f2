import { costsOverQuota, payloadOverQuota, tooManyQueued } from '../../domain/access/quota.ts';
import type { DomainError } from '../../domain/errors.ts';
import type { Sql } from '../../store/connection/sql.ts';
import { readUse } from '../../store/sql/quotas/quotas.ts';
import type { QuotaBook } from './quota-book.ts';

interface Submission {
  addonId: string;
  payload: string;
  costUnits: number;
}

/**
 * The submissions that exceed a quota of their tenant, with the reason. A job that costs more than all units
 * of its tenant would wait for ever, so it is refused too. The waiting jobs are read once for all of them.
 * Batches that run at the same time do not see each other's jobs, so a tenant may exceed `max_queued` by what
 * these have.
 */
export async function overQuota<Draft extends Submission>(
  sql: Sql,
  book: Pick<QuotaBook, 'of'>,
  drafts: readonly Draft[],
  signal: AbortSignal | undefined,
): Promise<Map<Draft, DomainError>> {
  const refused = new Map<Draft, DomainError>();
  const counted: { draft: Draft; limit: number }[] = [];
  for (const draft of drafts) {
    const quota = book.of(draft.addonId);
    if (!quota) continue;
    const { maxUnits, maxPayloadBytes, maxQueued } = quota;
    const bytes = maxPayloadBytes === null ? 0 : Buffer.byteLength(draft.payload);
    if (maxPayloadBytes !== null && bytes > maxPayloadBytes)
      refused.set(draft, payloadOverQuota(draft.addonId, maxPayloadBytes, bytes));
    else if (maxUnits !== null && draft.costUnits > maxUnits)
      refused.set(draft, costsOverQuota(draft.addonId, maxUnits, draft.costUnits));
    else if (maxQueued !== null) counted.push({ draft, limit: maxQueued });
  }
  if (counted.length === 0) return refused;
  const addonIds = [...new Set(counted.map(({ draft }) => draft.addonId))];
  const uses = await readUse(sql, addonIds, signal);
  const queued = new Map(addonIds.map((addonId) => [addonId, uses.get(addonId)?.queued ?? 0]));
  for (const { draft, limit } of counted) {
    const used = queued.get(draft.addonId) ?? 0;
    if (used >= limit) refused.set(draft, tooManyQueued(draft.addonId, limit, used));
    else queued.set(draft.addonId, used + 1);
  }
  return refused;
}
