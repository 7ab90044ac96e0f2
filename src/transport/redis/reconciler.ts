/**
 * Reconciles the streams of Redis with the database, periodically.
 *
 * Guarantees while Redis is available:
 * - A message whose row has been unsent for `unsentMs` is sent.
 * - A job that waits in a stream without a message gets one.
 * - A message that Redis has lost is sent again: soon if Redis has lost everything, which its marker shows,
 *   or else when a walk reaches it.
 * - A row whose attempt has ended but which still exists is removed.
 *
 * Every server does this, and no two servers do the same work. A server takes unsent rows with SKIP LOCKED
 * and moves their time forward, so that no other server takes them. The first server that finds a lost
 * message clears its id in the row.
 *
 * Lifecycle: each round works in bounded slices and leaves the rest to the next. Rounds follow each other
 * after about `pauseMs`, and at once when Redis is back. `stop` lets a round finish.
 *
 * Failure modes: a failed round is logged, once for a series of failures.
 */
import { ErrorReply } from '@redis/client';
import { type Envelope, enqueueIdOf } from '../../domain/streams/stream-message.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import {
  addMissingMessages,
  claimUnsentMessages,
  databaseName,
  deleteLostMessages,
  inspectMessages,
  type MessageRow,
  nowhere,
  queueStart,
  removeStaleMessages,
  type Slice,
} from '../../store/sql/streams/outbox.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { RoundMeter } from '../../telemetry/service-metrics.ts';
import type { RedisAcker } from './acker.ts';
import {
  ForeignRedisError,
  type RedisClient,
  type RedisConnection,
  RedisUnavailableError,
} from './connection.ts';
import type { RedisConsumer } from './consumer.ts';
import { keyOf, markerKeyOf } from './keys.ts';
import { ownerOf } from './owner.ts';
import type { RedisPendingClaimer } from './pending-claimer.ts';
import type { RedisPublisher } from './publisher.ts';

const pauseMs = 1_000;
const unsentMs = 2_000;
const sliceRows = 500;
/** Slices of one kind in one round. A walk continues only while it finds something to do. */
const slicesMax = 20;
/**
 * How long a server that searches for lost messages may take for a slice. After that another server starts
 * again.
 */
const markerMs = 10_000;

/** Jitter, so that the servers on one Redis do not all start their rounds at the same moment. */
const jittered = (ms: number) => ms * (0.75 + Math.random() / 2);

export interface SweepOptions {
  link: RedisConnection;
  sender: RedisPublisher;
  settler: RedisAcker;
  reader: RedisConsumer;
  takeover: RedisPendingClaimer;
  database: Database;
  consumer: string;
  metrics: Metrics;
  log: Log;
}

export class RedisReconciler implements Service {
  readonly #options: SweepOptions;
  readonly #meter: RoundMeter;
  readonly #rounds: PeriodicTask;
  #round: Promise<void> | undefined;
  #isFailing = false;
  /** The name of the database in Redis. */
  #name: string | undefined;
  /** Redis had the marker after this server's last check. */
  #wasMarked = false;
  /** The positions of the walks through the waiting jobs and through the messages. */
  #queuePlace = queueStart;
  #messagePlace = nowhere;
  /** Why Redis refused messages in this round; those of other streams are still sent. */
  #refusal: unknown;

  constructor(options: SweepOptions) {
    this.#options = options;
    this.#meter = options.metrics.round('redis_sweep');
    this.#rounds = new PeriodicTask({
      run: async () => {
        if (options.link.isUp) await this.runOnce();
        this.#isFailing = false;
        return jittered(pauseMs);
      },
      onFailed: (error) => this.#tellOf(error),
      failedMs: jittered(pauseMs),
    });
  }

  start(): void {
    this.#rounds.start(jittered(pauseMs));
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.#round?.catch(() => {});
  }

  /** Starts a round now, because Redis is back. */
  runSoon(): void {
    this.#rounds.wakeIn(0);
  }

  /** Does a round. Concurrent callers share one. */
  runOnce(): Promise<void> {
    this.#round ??= this.#meter
      .time(() => this.#sweep())
      .finally(() => {
        this.#round = undefined;
      });
    return this.#round;
  }

  /** Logs a failed round, except for an unavailable Redis, which the connection reports. */
  #tellOf(error: unknown): void {
    const { log } = this.#options;
    const isNews = !this.#isFailing && !(error instanceof RedisUnavailableError);
    const level = isNews ? 'warn' : 'debug';
    log[level]('streams could not be brought in line with the database', { error });
    if (isNews) this.#isFailing = true;
  }

  async #sweep(): Promise<void> {
    const { reader, takeover } = this.#options;
    await this.#checkOwner();
    await this.#checkMarker().catch((error: unknown) => this.#noteRefusal(error));
    await reader.refresh();
    await this.#sendUnsent();
    await this.#addMissing();
    await this.#checkMessages();
    await takeover.runOnce(reader.streams);
    const refusal = this.#refusal;
    this.#refusal = undefined;
    if (refusal !== undefined) throw refusal;
  }

  /** After Redis has lost everything, another database may have taken it. Connecting again detects that. */
  async #checkOwner(): Promise<void> {
    const { link, database } = this.#options;
    this.#name ??= await databaseName(database);
    const name = this.#name;
    const owner = await link.run((client) => ownerOf(client, name));
    // A Redis without an owner was emptied again; the next round takes it.
    if (owner !== null && owner !== name)
      link.drop(new ForeignRedisError('it carries the messages of another database'));
  }

  /**
   * Checks whether Redis has lost everything. The first server to set the marker again walks through all
   * messages.
   */
  async #checkMarker(): Promise<void> {
    const { link, sender, consumer, log } = this.#options;
    const key = markerKeyOf(this.#name ?? '');
    const expiration = { type: 'PX', value: markerMs } as const;
    const wasMarked = this.#wasMarked;
    this.#wasMarked = true;
    if ((await link.run((client) => client.get(key))) !== null) return;
    if ((await link.run((client) => client.set(key, consumer, { condition: 'NX', expiration }))) === null)
      return;
    sender.forget();
    let lost = 0;
    for (let place: string | undefined = nowhere; place !== undefined; ) {
      const slice = await this.#checkSlice(place);
      lost += slice.found.length;
      place = slice.next;
      // If Redis has lost everything again meanwhile, the next round starts over.
      if ((await link.run((client) => client.pExpire(key, markerMs))) === 0) return;
    }
    await link.run((client) => client.set(key, consumer, { condition: 'XX' }));
    if (lost > 0 || wasMarked)
      log.info('Redis had lost its messages; they were sent again', { messages: lost });
  }

  async #sendUnsent(): Promise<void> {
    const { sender } = this.#options;
    for (let slices = 0; slices < slicesMax; slices++) {
      const unsent = await claimUnsentMessages(this.#options.database, sliceRows, unsentMs);
      await this.#send(unsent);
      // Redis would refuse the rest of the messages now, too.
      if (unsent.length < sliceRows || sender.isRefused) return;
    }
  }

  async #addMissing(): Promise<void> {
    await this.#walk(async () => {
      const slice = await addMissingMessages(this.#options.database, this.#queuePlace, sliceRows);
      this.#queuePlace = slice.next ?? queueStart;
      await this.#send(slice.found);
      return slice;
    });
  }

  async #checkMessages(): Promise<void> {
    await this.#walk(async () => {
      const slice = await this.#checkSlice(this.#messagePlace);
      this.#messagePlace = slice.next ?? nowhere;
      return slice;
    });
  }

  /** Checks the next messages, removes those whose attempt has ended, and sends the lost ones again. */
  async #checkSlice(after: string): Promise<Slice<string, unknown>> {
    const { database, settler } = this.#options;
    const { next, found: rows } = await inspectMessages(database, after, sliceRows);
    const stale = await removeStaleMessages(
      database,
      rows.filter((row) => row.stale),
    );
    settler.ack(stale);
    const missing = await this.#missingAmong(rows.filter((row) => row.queued && !row.stale));
    const lost = await deleteLostMessages(database, missing);
    await this.#send(lost);
    return { next, found: [...stale, ...lost] };
  }

  /** Walks on while a slice finds something to do, and checks at least one slice. */
  async #walk(step: () => Promise<Slice<unknown, unknown>>): Promise<void> {
    for (let slices = 0; slices < slicesMax; slices++) {
      const { next, found } = await step();
      if (next === undefined || found.length === 0) return;
    }
  }

  async #missingAmong(rows: readonly MessageRow[]): Promise<MessageRow[]> {
    const { link } = this.#options;
    const isThere = async (client: RedisClient, row: MessageRow) => {
      const { stream, messageId } = row;
      if (messageId === null) return true;
      const entries = await client.xRange(keyOf(stream), messageId, messageId).catch(nothingIfRefused);
      // After losing everything, Redis may give the same id to another message.
      return entries?.some(({ message }) => message.enqueue_id === enqueueIdOf(row)) ?? false;
    };
    const answers = await link.run((client) => Promise.all(rows.map((row) => isThere(client, row))));
    return rows.filter((_, i) => !answers[i]);
  }

  /** Records a refusal of Redis, so that the rest of the round is still done. */
  #noteRefusal(error: unknown): void {
    if (!(error instanceof ErrorReply)) throw error;
    this.#refusal ??= error;
  }

  /** Throws if Redis or the database is unavailable; records a refusal of Redis. */
  async #send(envelopes: readonly Envelope[]): Promise<void> {
    const { sender, reader } = this.#options;
    for (const { stream } of envelopes) reader.add(stream);
    const sent = await Promise.allSettled(
      sender.isFull ? [] : envelopes.map((envelope) => sender.send(envelope)),
    );
    const reasons = sent.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    const failure = reasons.find((reason) => !(reason instanceof ErrorReply));
    if (failure !== undefined) throw failure;
    this.#refusal ??= reasons[0];
  }
}

/** If the key of a stream holds another type, it has no message. */
function nothingIfRefused(error: unknown): null {
  if (error instanceof ErrorReply) return null;
  throw error;
}
