/** Audit events: privileged acts with their principals. They are inserted once, and never updated. */
import { raw } from '@mikro-orm/core';
import type { AuditEvent } from '../../../domain/access/audit.ts';
import type { PrincipalKind } from '../../../domain/access/principal.ts';
import { type EntitySql, timeMs } from '../../connection/sql.ts';
import { AuditEventRow } from '../../schema/access-entities.ts';

/** Runs in the transaction of the act itself, so that neither exists without the other. */
export async function recordAudit(
  sql: EntitySql,
  event: Omit<AuditEvent, 'auditId' | 'atMs'>,
): Promise<void> {
  const { principal, requestedBy, peer, action, target, outcome, detail, traceId } = event;
  await sql.em().insert(AuditEventRow, {
    at: raw('clock_timestamp()'),
    principal_kind: principal.kind,
    principal_id: principal.id,
    principal_name: principal.name,
    requested_by: requestedBy,
    peer,
    action,
    target,
    outcome,
    detail,
    trace_id: traceId,
  });
}

export interface AuditFilter {
  /** Only events before this one. */
  cursor: string | null;
  sinceMs: number | null;
  principalId: string | null;
  action: string | null;
  limit: number;
}

/** The newest first. */
export async function listAudit(
  sql: EntitySql,
  { cursor, sinceMs, principalId, action, limit }: AuditFilter,
  signal?: AbortSignal,
): Promise<AuditEvent[]> {
  const where = {
    ...(cursor === null ? {} : { audit_id: { $lt: cursor } }),
    ...(sinceMs === null ? {} : { at: { $gte: new Date(sinceMs) } }),
    ...(principalId === null ? {} : { principal_id: principalId }),
    ...(action === null ? {} : { action }),
  };
  const rows = await sql.em(signal).find(AuditEventRow, where, { orderBy: { audit_id: 'desc' }, limit });
  return rows.map((row) => ({
    auditId: row.audit_id,
    atMs: timeMs(row.at),
    principal: { kind: row.principal_kind as PrincipalKind, id: row.principal_id, name: row.principal_name },
    requestedBy: row.requested_by ?? null,
    peer: row.peer,
    action: row.action,
    target: row.target ?? null,
    outcome: row.outcome as AuditEvent['outcome'],
    detail: row.detail ?? null,
    traceId: row.trace_id ?? null,
  }));
}
