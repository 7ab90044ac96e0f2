/**
 * Audit events: privileged acts and refused calls, with their principals. They are inserted once and never
 * updated: triggers refuse it. The pruner deletes what is too old.
 */
import { type InferEntity, raw } from '@mikro-orm/core';
import type { AuditDraft, AuditEvent } from '../../../domain/access/audit.ts';
import type { PrincipalKind } from '../../../domain/access/principal.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { AuditEventRow } from '../../schema/access-entities.ts';

const rowOf = (event: AuditDraft) => ({
  at: raw("clock_timestamp() - ?::float8 * interval '1 ms'", [event.agoMs ?? 0]),
  principal_kind: event.principal.kind,
  principal_id: event.principal.id,
  principal_name: event.principal.name,
  requested_by: event.requestedBy,
  peer: event.peer,
  method: event.method,
  action: event.action,
  target: event.target,
  outcome: event.outcome,
  detail: event.detail,
  trace_id: event.traceId,
  left_out: event.leftOut,
});

/** Runs in the transaction of the act itself, so that neither exists without the other. */
export async function recordAudit(sql: EntitySql, ...events: readonly AuditDraft[]): Promise<void> {
  if (events.length > 0) await sql.em().insertMany(AuditEventRow, events.map(rowOf));
}

/** Records the first use of keys from addresses, except those that are recorded already. */
export async function recordNewAddresses(sql: EntitySql, events: readonly AuditDraft[]): Promise<void> {
  if (events.length === 0) return;
  await sql.em().qb(AuditEventRow).insert(events.map(rowOf)).onConflict().ignore().execute();
}

export interface AuditFilter {
  /** Only events before this one. */
  cursor: string | null;
  sinceMs: number | null;
  /** Only events before this time. */
  untilMs: number | null;
  principalId: string | null;
  action: string | null;
  outcome: AuditEvent['outcome'] | null;
  limit: number;
}

/** The newest first. */
export async function listAudit(
  sql: EntitySql,
  { cursor, sinceMs, untilMs, principalId, action, outcome, limit }: AuditFilter,
  signal?: AbortSignal,
): Promise<AuditEvent[]> {
  const at = {
    ...(sinceMs === null ? {} : { $gte: new Date(sinceMs) }),
    ...(untilMs === null ? {} : { $lt: new Date(untilMs) }),
  };
  const where = {
    ...(cursor === null ? {} : { audit_id: { $lt: cursor } }),
    ...(Object.keys(at).length === 0 ? {} : { at }),
    ...(principalId === null ? {} : { principal_id: principalId }),
    ...(action === null ? {} : { action }),
    ...(outcome === null ? {} : { outcome }),
  };
  const rows = await sql.em(signal).find(AuditEventRow, where, { orderBy: { audit_id: 'desc' }, limit });
  return rows.map(eventOf);
}

const eventOf = (row: InferEntity<typeof AuditEventRow>): AuditEvent => ({
  auditId: row.audit_id,
  atMs: timeMs(row.at),
  principal: { kind: row.principal_kind as PrincipalKind, id: row.principal_id, name: row.principal_name },
  requestedBy: row.requested_by ?? null,
  peer: row.peer,
  method: row.method ?? null,
  action: row.action as AuditEvent['action'],
  target: row.target ?? null,
  outcome: row.outcome as AuditEvent['outcome'],
  detail: row.detail ?? null,
  traceId: row.trace_id ?? null,
  leftOut: row.left_out,
});
