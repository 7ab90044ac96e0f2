import { type FileEventType, fileEventTypes } from '../../src/domain/files/file-lease.ts';
import { type EventType, eventTypes, transitions } from '../../src/domain/jobs/state-machine.ts';
import { code, codes, table } from './markdown.ts';

/** What an event says, and the fields of its `data` beside `by`, `from` and `to`. */
interface Described {
  means: string;
  data: readonly string[];
}

const jobEvents: Readonly<Record<EventType, Described>> = {
  JOB_SUBMITTED: { means: 'A client submitted the job.', data: ['priority'] },
  JOB_CLAIMED: { means: 'A worker claimed the job.', data: ['worker_id', 'claim_expires_at'] },
  JOB_PREPARING: { means: 'The worker prepares to run the job.', data: ['note'] },
  JOB_LEASE_PENDING: { means: 'The worker waits for a lease.', data: ['note'] },
  LEASE_GRANTED: {
    means: 'The server granted a lease. A new attempt begins.',
    data: ['worker_id', 'attempt', 'fence', 'ttl_sec', 'expires_at'],
  },
  LEASE_DENIED: {
    means: 'The server denied the lease of a claimed job. The claim stays.',
    data: ['reason', 'cost_units'],
  },
  JOB_RUNNING: { means: 'The first heartbeat or the release of a `LEASED` job arrived.', data: [] },
  LEASE_RELEASED: { means: 'The worker released the lease.', data: ['status', 'worker_id'] },
  LEASE_EXPIRED: {
    means: 'The lease expired without a release.',
    data: [
      'worker_id',
      'last_heartbeat_at',
      'expires_at',
      'attempt',
      'undelivered',
      'stream_closed_at',
      'stream_end',
    ],
  },
  CLAIM_EXPIRED: {
    means: 'The claim expired before the job was leased.',
    data: ['reason', 'worker_id', 'claim_expires_at', 'claims_lost'],
  },
  JOB_REQUEUED: {
    means:
      'The job returned to the queue: the worker gave it back, the attempt may be repeated, or the grant was never confirmed.',
    data: ['reason', 'code', 'attempts', 'retry_in_ms', 'note'],
  },
  JOB_DONE: { means: 'The job succeeded.', data: [] },
  JOB_FAILED: { means: 'The job failed, and is not repeated.', data: ['reason', 'code'] },
  JOB_TIMEOUT: { means: 'The last attempt expired, and no attempt is left.', data: ['reason'] },
  JOB_CANCEL_REQUESTED: {
    means: 'A client asked to cancel a leased job. Its worker learns of it with the next heartbeat.',
    data: ['reason', 'principal'],
  },
  JOB_CANCELED: { means: 'The job was canceled.', data: ['reason', 'principal', 'code'] },
  JOB_DEAD_LETTERED: {
    means: 'The job of a stream became a dead letter.',
    data: ['stream', 'attempts', 'reason', 'code'],
  },
  JOB_RETRIED: {
    means: 'An operator put an ended job back into the queue. `previous` has the result before.',
    data: ['reason', 'principal', 'previous'],
  },
  JOB_UNSCHEDULABLE: {
    means: 'The job costs more than the total capacity. The scheduler skips it until the total is raised.',
    data: ['reason', 'cost_units', 'total'],
  },
};

const fileEvents: Readonly<Record<FileEventType, Described>> = {
  FILE_GRANTED: {
    means: 'The server granted the file to the owner.',
    data: ['instruction', 'reason', 'lent_by', 'returned_by'],
  },
  FILE_CONTENDED: {
    means: 'The request was denied because another owner holds the file. `retry_at` is 180 s later.',
    data: ['blocker_owner_id', 'retry_at'],
  },
  FILE_RETRY_DUE: { means: 'The denied request may be retried once, now.', data: ['denied_at', 'retry_at'] },
  FILE_HALTED: {
    means: 'The retry was denied as well. The contention waits for an instruction.',
    data: ['blocker_owner_id', 'instruction', 'reason'],
  },
  FILE_INSTRUCTED: {
    means: 'An operator instructed the contention. `kept` is set where the owner is not alive.',
    data: ['instruction', 'reason', 'kept'],
  },
  FILE_ABANDONED: { means: 'An operator closed the contention.', data: ['instruction', 'reason'] },
  FILE_LAPSED: { means: 'The owner did not use the retry within 10 minutes.', data: ['reason'] },
  FILE_RELEASED: {
    means: 'The owner released the file, ended, or stayed idle; or the file was lent or returned.',
    data: ['reason', 'lent_to', 'returned_to'],
  },
  FILE_RECLAIMED: {
    means: 'The file was taken from an owner that is not alive, or by an operator.',
    data: ['reason', 'instruction', 'last_heartbeat_at', 'reclaimed_at', 'returned_to'],
  },
  OWNER_STOPPED: { means: 'The owner reported that it has stopped.', data: [] },
  OWNER_RESUMED: { means: 'A stopped owner showed activity.', data: [] },
  OWNER_IDLE: { means: 'A stopped owner showed no activity for 30 s. Its files are released.', data: [] },
  OWNER_ENDED: { means: 'The owner ended. Its files are released.', data: [] },
  OWNER_DEAD: {
    means: 'The owner sent no heartbeat for 60 s. Its files are reclaimed.',
    data: ['last_heartbeat_at', 'reclaimed_at'],
  },
};

/** Which transitions of the state machine an event records. */
const transitionsOf = (type: EventType): string =>
  transitions
    .filter(({ event }) => event === type)
    .map(({ from, to }) => `${codes(from)} → ${code(to)}`)
    .join('; ');

export const jobEventsSection = (): string =>
  table(
    ['Event', 'State change', 'Meaning', 'Fields of `data`'],
    eventTypes.map((type) => {
      const { means, data } = jobEvents[type];
      return [code(type), type === 'JOB_SUBMITTED' ? '→ `QUEUED`' : transitionsOf(type), means, codes(data)];
    }),
  );

export const fileEventsSection = (): string =>
  table(
    ['Event', 'Meaning', 'Fields of `data`'],
    fileEventTypes.map((type) => [code(type), fileEvents[type].means, codes(fileEvents[type].data)]),
  );
