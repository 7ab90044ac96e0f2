/**
 * Brings the streams of Redis in line with the database, again and again.
 *
 * Promises, while Redis is there: a message whose row has been unsent for `unsentMs` is sent; a job that waits in a
 * stream and has no message gets one; a message that Redis has lost is sent again, soon where Redis has lost everything,
 * which its marker tells, and once a walk comes by where it has lost a few; a row whose attempt has ended without
 * anybody to remove it is removed.
 *
 * Every server does this, and no work is done twice by them: rows are taken under a lock that others pass over and are
 * moved out of their reach, and lost messages are forgotten by whoever is first. Each round works in slices and is bounded;
 * what is left is done by the next. Rounds follow each other in about `pauseMs`, and at once where Redis has come back. A
 * round that fails is logged, once for as long as they go on failing. `stop` lets a round finish.
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
/** Slices of one kind in one round: a walk goes on only where it finds something to do. */
const slicesMax = 20;
/** So long a server that looks for what was lost may take for a slice; then another begins again. */
const markerMs = 10_000;

/** Several servers on one Redis do not all sweep at the same moment. */
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
  /** What the database is called in Redis. */
  #name: string | undefined;
  /** Redis was marked when this server last looked. */
  #wasMarked = false;
  /** How far the walks have come: through the jobs that wait, and through the messages. */
  #queuePlace = queueStart;
  #messagePlace = nowhere;
  /** Why Redis would not take messages in this round; those of other streams are sent all the same. */
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

  /** Redis is back: a round begins now. */
  runSoon(): void {
    this.#rounds.wakeIn(0);
  }

  /** Does a round. Many who ask at the same time share one. */
  runOnce(): Promise<void> {
    this.#round ??= this.#meter
      .time(() => this.#sweep())
      .finally(() => {
        this.#round = undefined;
      });
    return this.#round;
  }

  /** That Redis is away is told by others. */
  #tellOf(error: unknown): void {
    const { log } = this.#options;
    const isNews = !this.#isFailing && !(error instanceof RedisUnavailableError);
    (isNews ? log.warn : log.debug)('streams could not be brought in line with the database', { error });
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

  /** A Redis that has lost everything may have been taken by another database meanwhile, which connecting again tells. */
  async #checkOwner(): Promise<void> {
    const { link, database } = this.#options;
    this.#name ??= await databaseName(database);
    const name = this.#name;
    const owner = await link.run((client) => ownerOf(client, name));
    // Without an owner it was emptied once more; the next round takes it again.
    if (owner !== null && owner !== name)
      link.drop(new ForeignRedisError('it carries the messages of another database'));
  }

  /** Finds out whether Redis has lost everything; whoever is first to mark it again walks through all messages. */
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
      // Where everything was lost once more meanwhile, the next round begins again.
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
      // What Redis will not take now it will not take a moment later.
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

  /** Looks at the next messages, removes those that are over, and sends those that were lost. */
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

  /** Goes on while there is something to do, and looks at one slice where there is not. */
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
      // A Redis that has lost everything may give the same name to another message.
      return entries?.some(({ message }) => message.enqueue_id === enqueueIdOf(row)) ?? false;
    };
    const answers = await link.run((client) => Promise.all(rows.map((row) => isThere(client, row))));
    return rows.filter((_, i) => !answers[i]);
  }

  /** What Redis refuses keeps nothing else of a round from being done. */
  #noteRefusal(error: unknown): void {
    if (!(error instanceof ErrorReply)) throw error;
    this.#refusal ??= error;
  }

  /** Fails where Redis or the database is away; what Redis will not take is remembered. */
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

/** Where the key of a stream holds something else, no message is there. */
function nothingIfRefused(error: unknown): null {
  if (error instanceof ErrorReply) return null;
  throw error;
}
