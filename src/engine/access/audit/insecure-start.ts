import type { AuditDraft } from '../../../domain/access/audit.ts';
import type { Log } from '../../../lib/log.ts';
import type { Database } from '../../../store/database.ts';
import { recordAudit } from '../../../store/sql/access/audit.ts';
import { detailOf } from './audited.ts';

interface InsecureStart {
  insecure: readonly string[];
  auth: readonly string[];
  hasTls: boolean;
  /** The addresses of both ports. */
  addresses: readonly string[];
}

/** Records the start of a server with `LEASEHOLD_INSECURE`. A start is not given up because of it. */
export async function recordInsecureStart(
  { insecure, auth, hasTls, addresses }: InsecureStart,
  database: Database,
  log: Log,
): Promise<void> {
  if (insecure.length === 0) return;
  const event: AuditDraft = {
    principal: { kind: 'system', id: 'server', name: 'server' },
    requestedBy: null,
    peer: 'server',
    method: null,
    action: 'server.start_insecure',
    target: addresses.join(','),
    outcome: 'done',
    detail: detailOf({
      insecure: insecure.join(','),
      auth: auth.join(',') || 'none',
      tls: hasTls ? 'on' : 'off',
    }),
    traceId: null,
    leftOut: 0,
  };
  await recordAudit(database, event).catch((error: unknown) =>
    log.warn('the insecure start could not be recorded in the audit', { error }),
  );
}
