/** Streams and attempts with the queue contract's field names. */
import type { Static } from 'typebox';
import type { Lease } from '../../domain/leases/lease.ts';
import type { StreamDepth } from '../../domain/streams/stream-depth.ts';
import { LeaseRecord, leaseRecord } from '../leases/schemas.ts';
import { count, entity, uuid, word } from '../openapi/schema-types.ts';

export const Stream = entity('Stream', 'A stream, and how much is in it.', {
  stream: word('Its name.'),
  queued: count('Jobs that may be had now.'),
  delayed: count('Jobs that wait for a backoff, a time to start, or more capacity.'),
  running: count('Jobs that are leased.'),
  dead_lettered: count('Jobs that it has given up.'),
});

export const streamDepth = (depth: StreamDepth): Static<typeof Stream> => ({
  stream: depth.stream,
  queued: depth.queued,
  delayed: depth.delayed,
  running: depth.running,
  dead_lettered: depth.deadLettered,
});

export const Attempt = entity('Attempt', 'An attempt at a job, which is a lease.', {
  attempt_id: uuid('The attempt; the same as its lease.'),
  ...LeaseRecord.properties,
});

export const attempt = (lease: Lease): Static<typeof Attempt> => ({
  attempt_id: lease.leaseId,
  ...leaseRecord(lease),
});
