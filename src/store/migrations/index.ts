import { Jobs } from './0001-jobs.ts';
import { Leases } from './0002-leases.ts';
import { Streams } from './0003-streams.ts';
import { Files } from './0004-files.ts';
import { Stats } from './0005-stats.ts';
import { History } from './0006-history.ts';
import { Lanes } from './0007-lanes.ts';
import { LeanHistory } from './0008-lean-history.ts';
import { Silences } from './0009-silences.ts';
import { Submissions } from './0010-submissions.ts';

/** In the order in which they run. Names are recorded in the database and never change. */
export const migrations = [
  { name: '0001-jobs', class: Jobs },
  { name: '0002-leases', class: Leases },
  { name: '0003-streams', class: Streams },
  { name: '0004-files', class: Files },
  { name: '0005-stats', class: Stats },
  { name: '0006-history', class: History },
  { name: '0007-lanes', class: Lanes },
  { name: '0008-lean-history', class: LeanHistory },
  { name: '0009-silences', class: Silences },
  { name: '0010-submissions', class: Submissions },
];
