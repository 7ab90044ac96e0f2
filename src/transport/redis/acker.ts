/**
 * Acknowledges and deletes messages whose attempts have ended, and messages that should not exist.
 *
 * Guarantees: a message that was added while Redis was available soon leaves its stream. Two commands remove
 * many messages. No caller waits. It holds `waitingMax` messages at most.
 *
 * Failure modes: a message that could not be removed is dropped here. The consumer or the pending claimer
 * finds it again.
 *
 * Lifecycle: `idle` settles when nothing is in flight.
 */
import type { SentMessage } from '../../domain/streams/stream-message.ts';
import type { Log } from '../../lib/log.ts';
import type { RedisClient, RedisConnection } from './connection.ts';
import { group, keyOf } from './keys.ts';

const waitingMax = 50_000;
const batchMax = 1_000;

export interface AckerOptions {
  link: RedisConnection;
  log: Log;
}

export class RedisAcker {
  readonly #options: AckerOptions;
  #waiting: SentMessage[] = [];
  #draining: Promise<void> | undefined;

  constructor(options: AckerOptions) {
    this.#options = options;
  }

  ack(messages: readonly SentMessage[]): void {
    const { link, log } = this.#options;
    const room = link.isUp ? waitingMax - this.#waiting.length : 0;
    if (messages.length > room)
      log.debug('messages are left for a later look', { messages: messages.length - room });
    for (let i = 0; i < Math.min(room, messages.length); i++) this.#waiting.push(messages[i] as SentMessage);
    if (this.#waiting.length > 0) this.#draining ??= this.#drain();
  }

  /** Settles when the removal of every added message has been tried. */
  async idle(): Promise<void> {
    await this.#draining;
  }

  async #drain(): Promise<void> {
    // Messages that are added in one turn of the event loop are removed together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, batchMax);
      this.#waiting = this.#waiting.slice(batchMax);
      await this.#remove(batch);
    }
    this.#draining = undefined;
  }

  async #remove(batch: readonly SentMessage[]): Promise<void> {
    const { link, log } = this.#options;
    try {
      const answers = await link.run((client) => Promise.allSettled(removals(client, batch)));
      const failed = answers.find((answer) => answer.status === 'rejected');
      if (failed) log.debug('Redis would not remove messages', { error: failed.reason });
    } catch (error) {
      log.debug('messages are left for a later look', { error, messages: batch.length });
    }
  }
}

function removals(client: RedisClient, batch: readonly SentMessage[]): Promise<unknown>[] {
  const byStream = Map.groupBy(batch, ({ stream }) => stream);
  return [...byStream].flatMap(([stream, messages]) => {
    const ids = messages.map(({ messageId }) => messageId);
    return [client.xAck(keyOf(stream), group, ids), client.xDel(keyOf(stream), ids)];
  });
}
