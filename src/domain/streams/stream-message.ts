/** A queued job of a stream, as its message tells of it: which job, and which attempt at it is to be made, from 1. */
export interface Envelope {
  jobId: string;
  stream: string;
  attempt: number;
}

/** The message of a granted job, by the name that its row had when the job was granted; null where it had none. */
export interface GrantedMessage extends Envelope {
  messageId: string | null;
}

/** A message that was sent, by the name that its transport gave it. */
export interface SentMessage {
  stream: string;
  messageId: string;
}

/**
 * What tells one queueing of a job from every other. A job is queued once for each attempt, so a message that tells of
 * another than the next or the present one is a duplicate, or comes too late.
 */
export const enqueueIdOf = ({ jobId, attempt }: Pick<Envelope, 'jobId' | 'attempt'>): string =>
  `${jobId}:${attempt}`;
