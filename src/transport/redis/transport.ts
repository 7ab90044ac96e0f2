/**
 * Carries the messages of streams over Redis Streams; see `transport/transport.ts` for the contract.
 *
 * Purpose: each stream is a key with one consumer group, and each server is one consumer of it. A message is
 * added after the commit that queued its job. One server reads it. It stays pending while its job waits and
 * runs, and is acknowledged and deleted after the commit that ended the attempt.
 *
 * Guarantees: the rows of the database are the reference. The reconciler, the pending claimer and the
 * verifier repair whatever is lost, doubled or left over.
 *
 * Lifecycle: `start` waits at most `startMs` for Redis. `stop` gives work in flight `finishMs` to finish.
 *
 * Failure modes: the state is `up` while there is a connection on which Redis answers in time and accepts
 * messages. It is `down` otherwise, and also if Redis carries the messages of another database. While it is
 * `down`, messages are not sent, not named by Redis and not acknowledged. Nothing waits for Redis, and the
 * reconciler catches up after it is back.
 */
import type { RedisFacts, RedisFailure } from '../../domain/doctor/facts.ts';
import {
  type Envelope,
  enqueueIdOf,
  type GrantedMessage,
  type SentMessage,
} from '../../domain/streams/stream-message.ts';
import { withTimeout } from '../../lib/async/with-timeout.ts';
import type { Log } from '../../lib/log.ts';
import { newId } from '../../lib/uuid.ts';
import type { Database } from '../../store/database.ts';
import { databaseName, type KnownMessage, readMessages } from '../../store/sql/streams/outbox.ts';
import { Metrics } from '../../telemetry/metrics.ts';
import type { Transport, TransportState } from '../transport.ts';
import { RedisAcker } from './acker.ts';
import { ForeignRedisError, type RedisClient, RedisConnection, RedisUnavailableError } from './connection.ts';
import { RedisConsumer } from './consumer.ts';
import { inspectRedis } from './inspect.ts';
import { ownerKey } from './keys.ts';
import { ownerOf } from './owner.ts';
import { RedisPendingClaimer } from './pending-claimer.ts';
import { RedisPublisher } from './publisher.ts';
import { RedisReconciler } from './reconciler.ts';
import { RedisVerifier } from './verifier.ts';

/** How long a grant may wait for the id of its message. */
const nameMs = 100;
const startMs = 500;
const finishMs = 1_000;

export interface RedisTransportOptions {
  /** A `redis://` address. */
  url: string;
  database: Database;
  log: Log;
  /** How long a consumer without pending messages may be idle before it is deleted; a minute if omitted. */
  silentMs?: number;
  /** The metrics; a private instance if omitted. */
  metrics?: Metrics;
}

export class RedisTransport implements Transport {
  readonly keepsMessages = true;
  /** The name of this server's consumer. */
  readonly consumer = newId();
  readonly #log: Log;
  readonly #database: Database;
  #databaseName: Promise<string> | undefined;
  readonly #link: RedisConnection;
  readonly #readerLink: RedisConnection;
  readonly #settler: RedisAcker;
  readonly #sender: RedisPublisher;
  readonly #reader: RedisConsumer;
  readonly #sweep: RedisReconciler;
  #wasDown = false;
  /** The reason of the last disconnect. */
  #away: Error | undefined;
  #stopping: Promise<void> | undefined;

  constructor({ url, database, log, silentMs, metrics = new Metrics() }: RedisTransportOptions) {
    const { consumer } = this;
    this.#log = log;
    this.#database = database;
    const admit = (client: RedisClient) => this.#admit(client);
    this.#link = new RedisConnection({
      url,
      admit,
      name: 'leasehold',
      onUp: () => this.#cameUp(),
      onDown: (reason) => this.#wentDown(reason),
    });
    this.#readerLink = new RedisConnection({
      url,
      admit,
      name: 'leasehold-reader',
      onUp: () => this.#reader.connected(),
      onDown: (reason) => log.debug('the connection that reads streams is away', { error: reason }),
    });
    const link = this.#link;
    const settler = new RedisAcker({ link, log });
    const sender = new RedisPublisher({ link, settler, database, metrics, log });
    const checker = new RedisVerifier({ sender, settler, database });
    const reader = new RedisConsumer({ link: this.#readerLink, checker, database, consumer, log });
    const takeover = new RedisPendingClaimer({ link, checker, consumer, silentMs, log });
    this.#settler = settler;
    this.#sender = sender;
    this.#reader = reader;
    const parts = { link, sender, settler, reader, takeover };
    this.#sweep = new RedisReconciler({ ...parts, database, consumer, metrics, log });
  }

  get state(): TransportState {
    return this.#link.isUp && !this.#sender.isRefused ? 'up' : 'down';
  }

  send(envelopes: readonly Envelope[]): void {
    if (!this.#link.isUp) return;
    for (const envelope of envelopes) {
      this.#reader.add(envelope.stream);
      if (this.#sender.isFull) return;
      // The publisher has logged the reason, and the reconciler sends the message again.
      this.#sender.send(envelope).catch(() => {});
    }
  }

  /**
   * Returns a message id only if the message's row has or had it, because any server compares a release with
   * the row. The row may have dropped an id that this process remembers, so the row is read.
   */
  async namesOf(messages: readonly GrantedMessage[]): Promise<string[]> {
    const rows = await this.#rowsOf(messages.filter(({ messageId }) => messageId === null));
    return Promise.all(
      messages.map((message) => message.messageId ?? this.#nameOf(message, rows.get(enqueueIdOf(message)))),
    );
  }

  async #rowsOf(messages: readonly Envelope[]): Promise<Map<string, KnownMessage>> {
    if (!this.#link.isUp) return new Map();
    const jobIds = messages.map(({ jobId }) => jobId);
    return readMessages(this.#database, jobIds).catch((error: unknown) => {
      this.#log.debug('failed to read the names of messages', { error });
      return new Map();
    });
  }

  /**
   * Sends a message that has no id yet. Without a row or an answer its enqueue id names it, which is always
   * valid.
   */
  async #nameOf(envelope: Envelope, row: KnownMessage | undefined): Promise<string> {
    const name = enqueueIdOf(envelope);
    if (row === undefined) return name;
    if (row.messageId !== null) return row.messageId;
    const sent = this.#sender.send(envelope).then(
      (found) => found ?? name,
      () => name,
    );
    return withTimeout(sent, nameMs, name);
  }

  ack(messages: readonly SentMessage[]): void {
    this.#settler.ack(messages);
  }

  async inspect(): Promise<RedisFacts | RedisFailure> {
    try {
      return await this.#link.run(inspectRedis);
    } catch (error) {
      const reason = error instanceof RedisUnavailableError && this.#away ? this.#away : error;
      const failed = reason instanceof Error ? reason.message : String(reason);
      return { failed, isForeign: reason instanceof ForeignRedisError };
    }
  }

  async start(): Promise<void> {
    this.#sweep.start();
    this.#reader.start();
    await withTimeout(Promise.all([this.#link.start(), this.#readerLink.start()]), startMs, undefined);
  }

  /** Reconciles Redis with the database once; does nothing while Redis is unavailable. */
  async runOnce(): Promise<void> {
    if (!this.#link.isUp) return;
    await this.#sweep.runOnce();
    await this.#settler.idle();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /**
   * Refuses a Redis database that has another owner: its messages would be acknowledged and deleted as
   * unknown ones.
   */
  async #admit(client: RedisClient): Promise<void> {
    this.#databaseName ??= databaseName(this.#database);
    const name = await this.#databaseName;
    const owner = await ownerOf(client, name);
    if (owner === null) throw new Error('its owner was lost again and again');
    if (owner !== name) {
      throw new ForeignRedisError(
        `it carries the messages of another database: its key ${ownerKey} is ${owner}, not ${name}`,
      );
    }
  }

  async #stop(): Promise<void> {
    const readerStopped = Promise.all([this.#reader.stop(), this.#readerLink.stop()]);
    const finished = Promise.all([readerStopped, this.#sweep.stop(), this.#sender.stop()]).then(() =>
      this.#settler.idle(),
    );
    await withTimeout(finished, finishMs, undefined);
    await this.#link.stop();
  }

  #cameUp(): void {
    if (this.#wasDown) this.#log.info('Redis is back; streams are brought in line with the database');
    this.#wasDown = false;
    this.#sweep.runSoon();
  }

  #wentDown(reason: Error): void {
    this.#wasDown = true;
    this.#away = reason;
    this.#log.warn('Redis is away; streams go on over the database alone', { error: reason });
  }
}
