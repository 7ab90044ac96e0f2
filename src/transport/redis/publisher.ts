/**
 * Sends messages and records their ids.
 *
 * Guarantees:
 * - A message is recorded once, however often and by however many servers it is sent. It is added to its
 *   stream first, and then recorded if its row has no id. A message that comes too late to be recorded is
 *   removed again.
 * - No row lock is held during a command to Redis.
 * - Messages that arrive while a batch is in flight form the next one. In this process one enqueueing has at
 *   most one message in flight.
 * - It holds `waitingMax` messages at most, and `isFull` says when.
 *
 * Lifecycle: `stop` lets batches in flight finish.
 *
 * Failure modes: a message that is lost on the way has a row that is still unsent, which the reconciler
 * finds.
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
/** How long another transaction usually holds a row lock. */
const pauseMs = 20;
/** How many messages each of the two generations remembers: enough until they are read back. */
const rememberedMax = 20_000;

export interface SenderOptions {
  link: RedisConnection;
  settler: RedisAcker;
  database: Database;
  metrics: Metrics;
  log: Log;
}

/** Whether Redis itself refuses, and not because of one stream's key. A lost connection is no refusal. */
const isRefusal = (reason: unknown): boolean =>
  reason instanceof ErrorReply && !reason.message.startsWith('WRONGTYPE');

/** The id of a message, or undefined if its attempt has ended or a transaction is ending it now. */
export type MessagePosition = string | undefined;

export class RedisPublisher {
  readonly #options: SenderOptions;
  readonly #flights = new Map<string, Promise<MessagePosition>>();
  readonly #batcher: Batcher<Envelope, MessagePosition>;
  /**
   * The ids of messages that this process has recorded, by enqueue id: the latest generation and the one
   * before.
   */
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

  /** Redis is available and has refused the last messages. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Whether `waitingMax` messages are in flight. */
  get isFull(): boolean {
    return this.#flights.size >= waitingMax;
  }

  /** Sends a message unless it is in flight, and returns its id. */
  send(envelope: Envelope): Promise<MessagePosition> {
    const enqueueId = enqueueIdOf(envelope);
    const underWay = this.#flights.get(enqueueId);
    if (underWay) return underWay;
    const flight = this.#batcher.run(envelope).finally(() => this.#flights.delete(enqueueId));
    this.#flights.set(enqueueId, flight);
    return flight;
  }

  /** The id that this process has recently recorded for a message. */
  positionOf(envelope: Envelope): MessagePosition {
    const enqueueId = enqueueIdOf(envelope);
    return this.#latest.get(enqueueId) ?? this.#earlier.get(enqueueId);
  }

  /** Whether a message is in flight in this process. */
  isSending(envelope: Envelope): boolean {
    return this.#flights.has(enqueueIdOf(envelope));
  }

  /** Forgets all recorded ids, because Redis has lost them. */
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
    // A single stream may be refused because its key holds another type.
    this.#isRefused = answers.every((answer) => answer.status === 'rejected' && isRefusal(answer.reason));
    if (failed) log.debug('Redis would not take messages', { error: failed.reason });
    return answers.map((answer, i) =>
      answer.status === 'fulfilled'
        ? { ...(envelopes[i] as Envelope), messageId: answer.value }
        : (answer.reason as Error),
    );
  }

  /**
   * Records messages. Retries once those whose rows another transaction has locked, because such locks are
   * short.
   */
  async #record(messages: readonly CarriedMessage[]): Promise<Recorded[]> {
    const { database } = this.#options;
    const recorded = await recordMessages(database, messages);
    const locked = messages.filter((_, i) => recorded[i] === 'locked');
    if (locked.length === 0) return recorded;
    await delay(pauseMs);
    const again = await recordMessages(database, locked);
    return recorded.map((one) => (one === 'locked' ? (again.shift() ?? one) : one));
  }

  /** Decides on a sent message by its row: remembers it if it was recorded, or else removes it. */
  #ack(message: CarriedMessage, recorded: Recorded | undefined): MessagePosition {
    // Another transaction still holds the row lock: the message is verified again later.
    if (recorded === undefined || recorded === 'locked') return undefined;
    const place = recorded === 'ended' ? undefined : recorded.messageId;
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
