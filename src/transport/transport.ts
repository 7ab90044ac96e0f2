import type { RedisFacts, RedisFailure } from '../domain/doctor/facts.ts';
import type { Envelope, GrantedMessage, SentMessage } from '../domain/streams/stream-message.ts';
import type { Service } from '../lib/async/service.ts';

/**
 * The state of a transport: `up` if it carries messages, `down` if it should but cannot, `none` if it has
 * nothing to carry.
 */
export type TransportState = 'up' | 'down' | 'none';

/**
 * Carries the messages of streams. The database is the truth and every message a hint: a transport may lose,
 * double or delay messages, and still no job is lost or run twice. No method throws, waits for long, or
 * decides.
 */
export interface Transport extends Service {
  /**
   * Messages have rows: the commits that queue jobs must write them, and the commits that end attempts must
   * delete them.
   */
  readonly keepsMessages: boolean;
  readonly state: TransportState;
  /** Sends the messages of jobs that a commit has queued, which also wrote their rows. */
  send(envelopes: readonly Envelope[]): void;
  /** The message ids that the workers of granted jobs get, in the order of `messages`. */
  namesOf(messages: readonly GrantedMessage[]): Promise<string[]>;
  /**
   * The facts about the server that carries the messages, or why they are unknown; null without such a
   * server.
   */
  inspect(): Promise<RedisFacts | RedisFailure | null>;
  /** Removes messages whose attempts a commit has ended, which also deleted their rows. */
  ack(messages: readonly SentMessage[]): void;
}
