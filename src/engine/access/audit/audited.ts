import type { AuditAction, AuditDraft } from '../../../domain/access/audit.ts';
import type { Caller } from '../../context/engine-context.ts';

interface Act {
  action: AuditAction;
  target: string | null;
  detail?: string | null;
  requestedBy?: string | null | undefined;
}

/** The event of an act that was carried out. */
export const audited = (
  { principal, peer, method, traceId }: Caller,
  { action, target, detail = null, requestedBy = null }: Act,
): AuditDraft => ({
  principal,
  requestedBy,
  peer,
  method: method ?? null,
  action,
  target,
  outcome: 'done',
  detail,
  traceId: traceId ?? null,
  leftOut: 0,
});

/**
 * `name=value` for each value that is there. Text of callers is quoted, so that none of it can look like a
 * further value.
 */
export const detailOf = (
  facts: Readonly<Record<string, string | number | null | undefined>>,
): string | null =>
  Object.entries(facts)
    .flatMap(([name, value]) => (value == null ? [] : [`${name}=${quoted(String(value))}`]))
    .join(' ') || null;

const quoted = (text: string): string => (/^[\w.,:>-]+$/.test(text) ? text : JSON.stringify(text));
