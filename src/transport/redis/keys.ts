/** What things are called in Redis, and how an envelope is written there. */
import { type Envelope, enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { isUuid } from '../../lib/uuid.ts';

/** All servers read as one group, so that each message is read by one of them. */
export const group = 'leasehold';

const streamPrefix = 'leasehold:stream:';

export const keyOf = (stream: string): string => streamPrefix + stream;

export const streamOf = (key: string): string => key.slice(streamPrefix.length);

/** Whose messages a Redis database carries; those of two databases would be strangers to each other. */
export const ownerKey = 'leasehold:owner';

/** It is there for as long as Redis has not lost what this database has sent to it. */
export const markerKeyOf = (databaseName: string): string => `leasehold:marker:${databaseName}`;

export const fieldsOf = (envelope: Envelope): Record<string, string> => ({
  job_id: envelope.jobId,
  enqueue_id: enqueueIdOf(envelope),
});

/** An entry as Redis has it; what it says may be anything. */
export interface Entry {
  id: string;
  message: Record<string, string>;
}

const attemptMax = 2 ** 31 - 1;

/** What an entry of a stream says, or nothing where it was not written by `fieldsOf`. */
export function envelopeIn(stream: string, { message }: Entry): Envelope | undefined {
  const { job_id: jobId, enqueue_id: enqueueId } = message;
  if (jobId === undefined || enqueueId === undefined || !isUuid(jobId)) return undefined;
  const envelope = { jobId, stream, attempt: Number(enqueueId.slice(jobId.length + 1)) };
  const isWhole =
    Number.isInteger(envelope.attempt) && envelope.attempt > 0 && envelope.attempt <= attemptMax;
  return isWhole && enqueueIdOf(envelope) === enqueueId ? envelope : undefined;
}
