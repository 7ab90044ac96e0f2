import type { RedisFacts, RedisFailure } from '../domain/doctor/facts.ts';
import type { Envelope, GrantedMessage, SentMessage } from '../domain/streams/stream-message.ts';
import type { Service } from '../lib/async/service.ts';

/** How a transport is: `up` where it carries messages, `down` where it should and cannot, `none` where it has nothing to. */
export type TransportState = 'up' | 'down' | 'none';

/**
 * Carries the messages of streams. The database is the truth and every message a hint: whatever a transport loses,
 * doubles or delays, no job is lost by it and none is run twice. Nothing here throws, waits for long, or decides.
 */
export interface Transport extends Service {
  /** Messages are kept: their rows have to be written with the commits that queue jobs, and go with those that end attempts. */
  readonly keepsMessages: boolean;
  readonly state: TransportState;
  /** These jobs were queued by a commit, which wrote the rows of their messages. */
  send(envelopes: readonly Envelope[]): void;
  /** What the workers of granted jobs are told as the names of their messages, in the order of these. */
  namesOf(messages: readonly GrantedMessage[]): Promise<string[]>;
  /** How that is which carries the messages, or why that is not known; null where there is nothing. */
  inspect(): Promise<RedisFacts | RedisFailure | null>;
  /** The attempts of these messages have ended by a commit, which deleted their rows. */
  ack(messages: readonly SentMessage[]): void;
}
