/**
 * Compares messages with the database, and removes the wrong ones.
 *
 * A message is right if its row records it for an attempt that has not ended. If the row has no message yet,
 * the message is recorded now. All others are wrong: entries that no server wrote, duplicates, and messages
 * of ended attempts. Right messages stay pending until they are acknowledged.
 */
import { type Envelope, enqueueIdOf } from '../../domain/streams/stream-message.ts';
import type { Database } from '../../store/database.ts';
import { type CarriedMessage, readMessages, recordMessages } from '../../store/sql/streams/outbox.ts';
import type { RedisAcker } from './acker.ts';
import { type Entry, envelopeIn } from './keys.ts';
import type { RedisPublisher } from './publisher.ts';

/** Messages that one statement reads. */
const batchMax = 1_000;

export interface CheckerOptions {
  sender: RedisPublisher;
  settler: RedisAcker;
  database: Database;
}

export class RedisVerifier {
  readonly #options: CheckerOptions;

  constructor(options: CheckerOptions) {
    this.#options = options;
  }

  /** Checks entries that were just read, except those that this process sends itself. */
  async checkNew(stream: string, entries: readonly Entry[]): Promise<void> {
    const { sender } = this.#options;
    const isOwn = (entry: Entry, envelope: Envelope) =>
      sender.positionOf(envelope) === entry.id || sender.isSending(envelope);
    const strange = entries.filter((entry) => {
      const envelope = envelopeIn(stream, entry);
      return envelope === undefined || !isOwn(entry, envelope);
    });
    await this.check(stream, strange);
  }

  async check(stream: string, entries: readonly Entry[]): Promise<void> {
    for (let i = 0; i < entries.length; i += batchMax) {
      await this.#checkBatch(stream, entries.slice(i, i + batchMax));
    }
  }

  async #checkBatch(stream: string, entries: readonly Entry[]): Promise<void> {
    const { database, settler } = this.#options;
    const messages: CarriedMessage[] = [];
    const wrong: string[] = [];
    for (const entry of entries) {
      const envelope = envelopeIn(stream, entry);
      if (envelope) messages.push({ ...envelope, messageId: entry.id });
      else wrong.push(entry.id);
    }
    const rows = await readMessages(
      database,
      messages.map(({ jobId }) => jobId),
    );
    const unrecorded: CarriedMessage[] = [];
    for (const message of messages) {
      const row = rows.get(enqueueIdOf(message));
      if (row?.stream === stream && row.messageId === null) unrecorded.push(message);
      else if (row?.stream !== stream || row.messageId !== message.messageId) wrong.push(message.messageId);
    }
    const recorded = await recordMessages(database, unrecorded);
    unrecorded.forEach(({ messageId }, i) => {
      const now = recorded[i];
      // A transaction that holds the row lock comes first. The message is checked again when it is claimed.
      if (now === 'ended' || (typeof now === 'object' && now.messageId !== messageId)) wrong.push(messageId);
    });
    settler.ack(wrong.map((messageId) => ({ stream, messageId })));
  }
}
