/**
 * A queued job of a stream as its message describes it: the job, and the number of its next attempt, from 1.
 */
export interface Envelope {
  jobId: string;
  stream: string;
  attempt: number;
}

/** The message of a granted job, with the id that its row had at the grant; null where it had none. */
export interface GrantedMessage extends Envelope {
  messageId: string | null;
}

/** A message that was sent, with the id that its transport assigned. */
export interface SentMessage {
  stream: string;
  messageId: string;
}

/**
 * Identifies one queueing of a job. A job is queued once for each attempt. A message of any attempt but the
 * next or the present one is a duplicate, or arrives too late.
 */
export const enqueueIdOf = ({ jobId, attempt }: Pick<Envelope, 'jobId' | 'attempt'>): string =>
  `${jobId}:${attempt}`;
