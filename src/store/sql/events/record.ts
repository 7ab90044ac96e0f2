import { finalStatuses, type JobEvent, type JsonObject, priorities } from '../../../domain/jobs/job.ts';
import {
  type EventType,
  eventNamed,
  eventNumber,
  type State,
  stateNamed,
  stateNumber,
} from '../../../domain/jobs/state-machine.ts';
import { iso } from '../../../domain/time.ts';
import { sqlWord, timeMs } from '../../connection/sql.ts';

/**
 * The rows of the history, and the events that they record.
 *
 * Most rows record one event. Two frequent rows take fewer bytes than JSON would:
 *
 * - A grant has its details in columns.
 * - A release has its status in a column, and records up to three events: the job ran, if no heartbeat
 *   recorded that; its lease was released; and the change of the job that followed. Its id is that of the
 *   first event. The sequence advances by four, so no other row has the ids of the other events.
 *
 * The first event of every job, its submission, has no row here. The job's own row records it: it is written
 * once and never changed, and its `seq` is the event's id.
 */
export interface EventRecord {
  event_id: string;
  at: string;
  job_id: string;
  lease_id: string | null;
  type: number;
  from_state: number | null;
  to_state: number | null;
  actor: string;
  data: JsonObject | null;
  attempt: number | null;
  fence: string | null;
  ttl_s: number | null;
  expires_at: string | null;
  release_status: number | null;
}

/**
 * The submissions of jobs, as rows of the history. Jobs of earlier versions have, or had before it was
 * pruned, a real row: their `seq` is at most `submissions_told.after_seq`.
 */
export const submissions = `(
  select job.job_id, job.seq as event_id, job.created_at as at, null::uuid as lease_id,
    ${eventNumber('JOB_SUBMITTED')}::smallint as type, null::smallint as from_state,
    ${stateNumber('QUEUED')}::smallint as to_state, job.addon_id as actor,
    jsonb_build_object('priority', ${sqlWord(priorities, 'job.priority')}) as data, null::int as attempt,
    null::bigint as fence, null::int as ttl_s, null::timestamptz as expires_at, null::smallint as release_status
  from jobs job where job.seq > (select after_seq from submissions_told where told_id = 1)
)`;

/** Distance between a row's id and the highest event id that it records. */
export const numbersAhead = 2;

/** The events of a row, in their order. */
export function toEvents(row: EventRecord): JobEvent[] {
  const { release_status: status, from_state: from, to_state: to, type, actor } = row;
  const own = { ...grantOf(row), ...row.data };
  if (status === null) return [eventOf(row, 0, eventNamed(type), stateOf(from), stateOf(to), own)];
  const released = { status: finalStatuses[status] ?? null, worker_id: actor };
  return [
    ...(stateOf(from) === 'LEASED' ? [eventOf(row, 0, 'JOB_RUNNING', 'LEASED', 'RUNNING', {})] : []),
    eventOf(row, 1, 'LEASE_RELEASED', 'RUNNING', 'RUNNING', released),
    eventOf(row, numbersAhead, eventNamed(type), 'RUNNING', stateOf(to), own),
  ];
}

/** Details of a grant's lease. */
function grantOf({ actor, attempt, fence, ttl_s, expires_at }: EventRecord): JsonObject {
  if (fence === null) return {};
  const until = expires_at === null ? null : iso(timeMs(expires_at));
  return { worker_id: actor, attempt, fence: Number(fence), ttl_sec: ttl_s, expires_at: until };
}

function eventOf(
  row: EventRecord,
  step: number,
  type: EventType,
  from: State | null,
  to: State | null,
  data: JsonObject,
): JobEvent {
  return {
    eventId: step === 0 ? row.event_id : String(BigInt(row.event_id) + BigInt(step)),
    tsMs: timeMs(row.at),
    type,
    jobId: row.job_id,
    leaseId: row.lease_id,
    data: { by: row.actor, from, to, ...data },
  };
}

const stateOf = (state: number | null): State | null => (state === null ? null : stateNamed(state));
