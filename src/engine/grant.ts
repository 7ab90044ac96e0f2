import type { Grant } from '../domain/lease.ts';
import type { GrantRecord } from '../store/statements/grant-leases.ts';
import { toJob } from '../store/statements/job-record.ts';
import { activeLeaseOf } from '../store/statements/lease-record.ts';

/** A lease that was just given, or is given again, with its token. */
export function grantOf(record: GrantRecord): Grant {
  const job = toJob(record);
  return {
    kind: 'granted',
    lease: activeLeaseOf(record, job),
    token: record.lease_token,
    job,
    messageId: record.message_id,
  };
}
