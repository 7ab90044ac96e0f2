import type { MigrationObject } from '@mikro-orm/core';
import { Jobs } from './v0.1/0001-jobs.ts';
import { Leases } from './v0.1/0002-leases.ts';
import { Streams } from './v0.1/0003-streams.ts';
import { Files } from './v0.1/0004-files.ts';
import { Stats } from './v0.1/0005-stats.ts';
import { History } from './v0.1/0006-history.ts';
import { Lanes } from './v0.1/0007-lanes.ts';
import { LeanHistory } from './v0.1/0008-lean-history.ts';
import { Silences } from './v0.1/0009-silences.ts';
import { Submissions } from './v0.1/0010-submissions.ts';
import { SchemaCompatibility } from './v0.2/0011-schema-compatibility.ts';
import { Crowds } from './v0.2/0012-crowds.ts';
import { FileLending } from './v0.2/0013-files.ts';
import { Workers } from './v0.2/0014-workers.ts';
import { CapacityChanges } from './v0.2/0015-capacity-changes.ts';
import { FailedJobs } from './v0.2/0017-failed-jobs.ts';
import { MessageNames } from './v0.2/0018-message-names.ts';
import { LanesOfCrowds } from './v0.2/0019-lanes-of-crowds.ts';
import { Access } from './v0.2/0020-access.ts';
import { Holders } from './v0.2/0021-holders.ts';
import { Audit } from './v0.2/0022-audit.ts';
import { Quotas } from './v0.2/0023-quotas.ts';
import { Sessions } from './v0.2/0024-sessions.ts';

export interface SchemaMigration extends MigrationObject {
  oldestWriter: string;
}

/**
 * Migrations in the order in which they run. A landed migration is never edited or renamed;
 * `test/store/migrations/migrations.test.ts` compares its SQL with a checksum. `oldestWriter` is the oldest
 * server version that may still write beside it; see `schema-compatibility.ts`.
 */
export const migrations: readonly SchemaMigration[] = [
  { name: '0001-jobs', class: Jobs, oldestWriter: '0.1.0' },
  { name: '0002-leases', class: Leases, oldestWriter: '0.1.0' },
  { name: '0003-streams', class: Streams, oldestWriter: '0.1.0' },
  { name: '0004-files', class: Files, oldestWriter: '0.1.0' },
  { name: '0005-stats', class: Stats, oldestWriter: '0.1.0' },
  { name: '0006-history', class: History, oldestWriter: '0.1.0' },
  { name: '0007-lanes', class: Lanes, oldestWriter: '0.1.0' },
  { name: '0008-lean-history', class: LeanHistory, oldestWriter: '0.1.0' },
  { name: '0009-silences', class: Silences, oldestWriter: '0.1.0' },
  { name: '0010-submissions', class: Submissions, oldestWriter: '0.1.0' },
  { name: '0011-schema-compatibility', class: SchemaCompatibility, oldestWriter: '0.1.0' },
  { name: '0012-crowds', class: Crowds, oldestWriter: '0.2.0' },
  { name: '0013-files', class: FileLending, oldestWriter: '0.2.0' },
  { name: '0014-workers', class: Workers, oldestWriter: '0.1.0' },
  { name: '0015-capacity-changes', class: CapacityChanges, oldestWriter: '0.1.0' },
  { name: '0017-failed-jobs', class: FailedJobs, oldestWriter: '0.2.0' },
  { name: '0018-message-names', class: MessageNames, oldestWriter: '0.1.0' },
  { name: '0019-lanes-of-crowds', class: LanesOfCrowds, oldestWriter: '0.2.0' },
  { name: '0020-access', class: Access, oldestWriter: '0.2.0' },
  { name: '0021-holders', class: Holders, oldestWriter: '0.2.0' },
  { name: '0022-audit', class: Audit, oldestWriter: '0.2.0' },
  { name: '0023-quotas', class: Quotas, oldestWriter: '0.2.0' },
  { name: '0024-sessions', class: Sessions, oldestWriter: '0.2.0' },
];
