/** The names of keys in Redis, and the form of an envelope there. */
import { type Envelope, enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { isUuid } from '../../lib/uuid.ts';

/** All servers read as one group, so that one server reads each message. */
export const group = 'leasehold';

const streamPrefix = 'leasehold:stream:';

export const keyOf = (stream: string): string => streamPrefix + stream;

export const streamOf = (key: string): string => key.slice(streamPrefix.length);

/**
 * Names the database whose messages a Redis database carries. A second database's messages would count as
 * unknown ones.
 */
export const ownerKey = 'leasehold:owner';

/** This key exists as long as Redis has not lost the messages of this database. */
export const markerKeyOf = (databaseName: string): string => `leasehold:marker:${databaseName}`;

export const fieldsOf = (envelope: Envelope): Record<string, string> => ({
  job_id: envelope.jobId,
  enqueue_id: enqueueIdOf(envelope),
});

/** An entry as Redis returns it; its content may be anything. */
export interface Entry {
  id: string;
  message: Record<string, string>;
}

const attemptMax = 2 ** 31 - 1;

/** The envelope in an entry, or undefined if `fieldsOf` did not write the entry. */
export function envelopeIn(stream: string, { message }: Entry): Envelope | undefined {
  const { job_id: jobId, enqueue_id: enqueueId } = message;
  if (jobId === undefined || enqueueId === undefined || !isUuid(jobId)) return undefined;
  const envelope = { jobId, stream, attempt: Number(enqueueId.slice(jobId.length + 1)) };
  const isWhole =
    Number.isInteger(envelope.attempt) && envelope.attempt > 0 && envelope.attempt <= attemptMax;
  return isWhole && enqueueIdOf(envelope) === enqueueId ? envelope : undefined;
}
