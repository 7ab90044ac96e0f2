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
 * The rows of the history, and what they tell.
 *
 * Most tell of one event. Two things happen to every job that goes well, and are told in fewer bytes than JSON takes: a grant
 * says what it is in columns, and the row of a release, which says as what the lease was released, tells of up to three
 * events: that the job ran, where nobody had been told; that its lease was released; and what became of it by that. Such a
 * row has the number of the first of these; numbers are given out four at a time, so that the others are nobody else's.
 *
 * What begins every history has no row here: a submission is told by the job's own row, which is written once and never
 * changed, and whose place in line is the event's number.
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
 * The submissions of jobs, as rows of the history. Those of earlier versions have a row of their own, or had one before it
 * was too old: their jobs are no further in line than `submissions_told` says.
 */
export const submissions = `(
  select job.job_id, job.seq as event_id, job.created_at as at, null::uuid as lease_id,
    ${eventNumber('JOB_SUBMITTED')}::smallint as type, null::smallint as from_state,
    ${stateNumber('QUEUED')}::smallint as to_state, job.addon_id as actor,
    jsonb_build_object('priority', ${sqlWord(priorities, 'job.priority')}) as data, null::int as attempt,
    null::bigint as fence, null::int as ttl_s, null::timestamptz as expires_at, null::smallint as release_status
  from jobs job where job.seq > (select after_seq from submissions_told where told_id = 1)
)`;

/** How far the last number that a row tells of is from its own. */
export const numbersAhead = 2;

/** What a row tells, in its order. */
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

/** What a grant says of its lease. */
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
