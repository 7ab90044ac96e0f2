/**
 * Sends messages and records where they lie.
 *
 * Promises: a message is recorded once, whoever sends it and however often: it is added to its stream first and then
 * recorded where no other is, and one that comes too late to be recorded is removed again. No lock of the database is
 * held while Redis is talked to. Messages that arrive while a batch is under way form the next one; of one enqueueing one is
 * under way at a time in this process. What is lost on the way has a row that says it is unsent, which the sweep finds.
 *
 * It holds `waitingMax` messages at the most and takes no more; `stop` lets it finish.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { ErrorReply } from '@redis/client';
import { type Envelope, enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { Batcher } from '../../lib/async/batcher.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { type CarriedMessage, type Recorded, recordMessages } from '../../store/sql/streams/outbox.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { RedisAcker } from './acker.ts';
import type { RedisConnection } from './connection.ts';
import { fieldsOf, keyOf } from './keys.ts';

const waitingMax = 20_000;
const batchMax = 500;
/** How long nobody else has a row, mostly. */
const pauseMs = 20;
/** How many of the last messages are remembered twice over: for as long as it takes to read them back. */
const rememberedMax = 20_000;

export interface SenderOptions {
  link: RedisConnection;
  settler: RedisAcker;
  database: Database;
  metrics: Metrics;
  log: Log;
}

/** Whether Redis itself says no, and not of the key of one stream. A connection that is lost says nothing of Redis. */
const isRefusal = (reason: unknown): boolean =>
  reason instanceof ErrorReply && !reason.message.startsWith('WRONGTYPE');

/** Where a message lies, or nothing where its attempt is over or somebody is just ending it. */
export type MessagePosition = string | undefined;

export class RedisPublisher {
  readonly #options: SenderOptions;
  readonly #flights = new Map<string, Promise<MessagePosition>>();
  readonly #batcher: Batcher<Envelope, MessagePosition>;
  /** Where messages lie that this process has recorded, by enqueue id: the latest, and those before them. */
  #latest = new Map<string, string>();
  #earlier = new Map<string, string>();
  #isRefused = false;

  constructor(options: SenderOptions) {
    this.#options = options;
    const flush = (envelopes: readonly Envelope[]) => this.#flush(envelopes);
    this.#batcher = new Batcher({
      flush,
      sizeMax: batchMax,
      waitingMax,
      meter: options.metrics.batch('send_messages'),
    });
  }

  async stop(): Promise<void> {
    await this.#batcher.close();
  }

  /** Redis is there, and would not take the last messages that it was sent. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Whether there is room for another message. */
  get isFull(): boolean {
    return this.#flights.size >= waitingMax;
  }

  /** Sends a message unless it is under way, and answers with where it lies. */
  send(envelope: Envelope): Promise<MessagePosition> {
    const enqueueId = enqueueIdOf(envelope);
    const underWay = this.#flights.get(enqueueId);
    if (underWay) return underWay;
    const flight = this.#batcher.run(envelope).finally(() => this.#flights.delete(enqueueId));
    this.#flights.set(enqueueId, flight);
    return flight;
  }

  /** Where this process has recorded a message to lie, of late. */
  positionOf(envelope: Envelope): MessagePosition {
    const enqueueId = enqueueIdOf(envelope);
    return this.#latest.get(enqueueId) ?? this.#earlier.get(enqueueId);
  }

  /** Whether this process sends a message just now. */
  isSending(envelope: Envelope): boolean {
    return this.#flights.has(enqueueIdOf(envelope));
  }

  /** What was recorded does not hold any more. */
  forget(): void {
    this.#latest = new Map();
    this.#earlier = new Map();
  }

  async #flush(envelopes: readonly Envelope[]): Promise<(MessagePosition | Error)[]> {
    const { log } = this.#options;
    try {
      const added = await this.#add(envelopes);
      const messages = added.filter((message): message is CarriedMessage => !(message instanceof Error));
      const recorded = await this.#record(messages);
      const places = new Map(messages.map((message, i) => [message, this.#ack(message, recorded[i])]));
      return added.map((message) => (message instanceof Error ? message : places.get(message)));
    } catch (error) {
      log.debug('messages could not be sent', { error, messages: envelopes.length });
      throw error;
    }
  }

  async #add(envelopes: readonly Envelope[]): Promise<(CarriedMessage | Error)[]> {
    const { link, log } = this.#options;
    const answers = await link.run((client) =>
      Promise.allSettled(
        envelopes.map((envelope) => client.xAdd(keyOf(envelope.stream), '*', fieldsOf(envelope))),
      ),
    );
    const failed = answers.find((answer) => answer.status === 'rejected');
    // One stream may be broken by itself: whoever holds something else under its key.
    this.#isRefused = answers.every((answer) => answer.status === 'rejected' && isRefusal(answer.reason));
    if (failed) log.debug('Redis would not take messages', { error: failed.reason });
    return answers.map((answer, i) =>
      answer.status === 'fulfilled'
        ? { ...(envelopes[i] as Envelope), messageId: answer.value }
        : (answer.reason as Error),
    );
  }

  /** Records messages, and once more those whose rows somebody has just now, who will be done soon. */
  async #record(messages: readonly CarriedMessage[]): Promise<Recorded[]> {
    const { database } = this.#options;
    const recorded = await recordMessages(database, messages);
    const open = messages.filter((_, i) => recorded[i] === 'open');
    if (open.length === 0) return recorded;
    await delay(pauseMs);
    const again = await recordMessages(database, open);
    return recorded.map((one) => (one === 'open' ? (again.shift() ?? one) : one));
  }

  /** What becomes of a message that lies in its stream, after its row was asked. */
  #ack(message: CarriedMessage, recorded: Recorded | undefined): MessagePosition {
    // Somebody still has the row: what is left is judged when the message is looked at again.
    if (recorded === undefined || recorded === 'open') return undefined;
    const place = recorded === 'over' ? undefined : recorded.messageId;
    if (place === message.messageId) this.#remember(message);
    else this.#options.settler.ack([message]);
    return place;
  }

  #remember(message: CarriedMessage): void {
    if (this.#latest.size >= rememberedMax) {
      this.#earlier = this.#latest;
      this.#latest = new Map();
    }
    this.#latest.set(enqueueIdOf(message), message.messageId);
  }
}
