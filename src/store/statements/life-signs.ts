import type { LifeSigns } from '../../domain/explain-silences.ts';
import { leasedStates, stateNumber } from '../../domain/machine.ts';
import { type Sql, timeMs } from '../sql.ts';
import { uuidArray } from './arrays.ts';

const told = 'lease_id, heartbeats, longest_silence_ms, longest_silence_since';

// Apart from what is read of leases elsewhere: who keeps, ends or lists them need not carry it. A job that waits again goes
// on naming its last lease, which has a row of its own by then.
const read = `
select ${told} from (select * from live_jobs where lease_id = any ($1::uuid[]) offset 0) live
where live.state = any ('{${leasedStates.map(stateNumber).join(',')}}'::smallint[])
union all
select ${told} from leases where lease_id = any ($1::uuid[])
union all
select ${told} from job_outcomes where lease_id = any ($1::uuid[]) and fence is not null`;

interface Row {
  lease_id: string;
  heartbeats: number | null;
  longest_silence_ms: number | null;
  longest_silence_since: string | null;
}

/** How these leases were kept until they were heard of last, by their ids. */
export async function readLifeSigns(sql: Sql, leaseIds: readonly string[]): Promise<Map<string, LifeSigns>> {
  if (leaseIds.length === 0) return new Map();
  const rows = await sql.query<Row>(read, [uuidArray(leaseIds)]);
  return new Map(rows.map((row) => [row.lease_id, signsOf(row)]));
}

function signsOf({ heartbeats, longest_silence_ms: ms, longest_silence_since: since }: Row): LifeSigns {
  if (ms === null || since === null) return { heartbeats, longestSilence: null };
  const sinceMs = timeMs(since);
  return { heartbeats, longestSilence: { sinceMs, untilMs: sinceMs + ms } };
}
