import type { FinalStatus, JsonObject } from '../../../domain/jobs/job.ts';
import { type EventType, eventNumber, type State, stateNumber } from '../../../domain/jobs/state-machine.ts';
import type { Sql } from '../../connection/sql.ts';
import { preparedStatement } from '../../connection/statement.ts';
import { statusNumber } from '../leases/record.ts';

export interface NewEvent {
  jobId: string;
  leaseId?: string | null;
  type: EventType;
  from: State | null;
  to: State | null;
  actor: string;
  data?: JsonObject;
  /**
   * The event happened because the lease was released with this status; the row records both. See
   * `record.ts`.
   */
  released?: FinalStatus;
}

const insertEvents = preparedStatement(
  ['events'],
  `
insert into job_events (at, job_id, lease_id, type, from_state, to_state, actor, data, release_status)
select clock_timestamp(), job_id, lease_id, type, from_state, to_state, actor, data, release_status
from jsonb_to_recordset(@events::jsonb) as event (job_id uuid, lease_id uuid, type smallint,
  from_state smallint,
  to_state smallint, actor text, data jsonb, release_status smallint)`,
);

/** Writes events in the order given. */
export async function writeEvents(sql: Sql, events: readonly NewEvent[]): Promise<void> {
  if (events.length === 0) return;
  const number = (state: State | null) => (state === null ? null : stateNumber(state));
  const rows = events.map(({ jobId, leaseId, type, from, to, actor, data, released }) => ({
    job_id: jobId,
    lease_id: leaseId ?? null,
    type: eventNumber(type),
    from_state: number(from),
    to_state: number(to),
    actor,
    data: data ?? null,
    release_status: released === undefined ? null : statusNumber(released),
  }));
  await insertEvents.query(sql, { events: JSON.stringify(rows) });
}
