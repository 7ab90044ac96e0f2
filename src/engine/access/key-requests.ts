/** Turns requests about keys into what the key service takes. */
import type { KeyDraft } from '../../domain/access/key.ts';
import type { KeyLimits } from '../../domain/access/key-limits.ts';
import { reachesEverything, type Scopes, scopeKinds } from '../../domain/access/scopes.ts';
import { invalid, printable } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { CreateKey, ListAudit } from '../../domain/requests/access.ts';
import type { AuditFilter } from '../../store/sql/access/audit.ts';

export const dayMs = 86_400_000;
export const expiresInDaysDefault = 90;

export function keyDraftOf(command: CreateKey, nowMs: number): KeyDraft {
  if (command.never_expires === true && command.expires_in_days != null)
    throw invalid('expires_in_days', 'cannot be set for a key that never expires');
  const days = command.never_expires === true ? null : (command.expires_in_days ?? expiresInDaysDefault);
  const { name, roles } = command;
  const scopes = scopesOf(command.scopes ?? {});
  // An administrator of everything manages keys of every worker, so it may act as each of them.
  const actsAsAll = roles.includes('admin') && reachesEverything(scopes);
  return {
    name,
    roles,
    scopes,
    workerIds: command.worker_ids ?? (actsAsAll ? ['*'] : [name, `${name}-*`, `${name}/*`]),
    seesPayloads: command.sees_payloads ?? false,
    limits: limitsOf(command.limits ?? {}),
    note: command.note ?? null,
    expiresAtMs: days === null ? null : nowMs + days * dayMs,
  };
}

const limitsOf = (given: NonNullable<CreateKey['limits']>): KeyLimits => ({
  submitPerS: given.submit_per_s ?? null,
  readPerS: given.read_per_s ?? null,
  burstS: given.burst_s ?? null,
  maxStreams: given.max_streams ?? null,
});

export const scopesOf = (given: NonNullable<CreateKey['scopes']>): Scopes =>
  Object.fromEntries(scopeKinds.map((kind) => [kind, given[kind] ?? []])) as unknown as Scopes;

export function auditFilterOf(command: ListAudit): AuditFilter {
  const { since, until, principal_id, action, outcome, limit, cursor } = command;
  if (cursor && !/^\d{1,18}$/.test(cursor))
    throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
  return {
    cursor: cursor || null,
    sinceMs: timeIn('since', since),
    untilMs: timeIn('until', until),
    principalId: principal_id ?? null,
    action: action ?? null,
    outcome: outcome ?? null,
    limit: limit ?? limits.pageRowsDefault,
  };
}

function timeIn(field: string, text: string | null | undefined): number | null {
  if (text == null) return null;
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) throw invalid(field, `is no time: ${printable(text)}`);
  return ms;
}
