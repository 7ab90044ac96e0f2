import type { Grant } from '../domain/lease.ts';
import type { GrantRecord } from '../store/statements/grant-leases.ts';
import { toJob } from '../store/statements/job-record.ts';
import { toLease } from '../store/statements/lease-record.ts';

/** A lease that was just given, or is given again, with its token. */
export const grantOf = (record: GrantRecord): Grant => ({
  kind: 'granted',
  lease: toLease(record),
  token: record.lease_token,
  job: toJob(record),
  messageId: record.message_id,
});
