/**
 * Reads the streams, so that wrong messages are removed and right ones stay pending until their attempt ends.
 *
 * Guarantees: one server reads and verifies each message of a known stream; see `verifier.ts`. No entry of a
 * stream, and no other value under its key, stops or delays the reading of other streams. The known streams
 * are those of the database: `add` adds one at once, `refresh` finds those of other servers.
 *
 * Lifecycle: it has a connection of its own, because reading blocks it. It waits while that is down or no
 * stream is known. `stop` settles when the loop has ended, which also requires the connection to stop.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { listStreams } from '../../store/sql/streams/outbox.ts';
import { type RedisClient, type RedisConnection, RedisUnavailableError } from './connection.ts';
import { type Entry, group, keyOf, streamOf } from './keys.ts';
import type { RedisVerifier } from './verifier.ts';

const blockMs = 1_000;
const answerMs = blockMs + 1_500;
/** The maximum of messages that one command reads, of one stream and of all streams. */
const streamBatchMax = 500;
const batchMax = 5_000;
/** The maximum of streams that are read. Messages of further ones are still sent and acknowledged. */
const streamsMax = 2_000;
const pauseMs = 100;
const idleMs = 1_000;

export interface ReaderOptions {
  link: RedisConnection;
  checker: RedisVerifier;
  database: Database;
  consumer: string;
  log: Log;
}

export class RedisConsumer {
  readonly #options: ReaderOptions;
  readonly #stopping = new AbortController();
  readonly #streams = new Set<string>();
  /** Streams whose group existed when it was last checked. */
  readonly #grouped = new Set<string>();
  /** Streams whose key holds another type; the next refresh tries them again. */
  readonly #unusable = new Set<string>();
  readonly #logged = new Set<string>();
  #loop: Promise<void> | undefined;
  #wake = () => {};
  /** Something has changed since the last turn of the loop began. */
  #interrupted = false;

  constructor(options: ReaderOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop ??= this.#read();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  /** The known streams that can be read. */
  get streams(): string[] {
    return [...this.#grouped];
  }

  add(stream: string): void {
    if (this.#streams.has(stream) || this.#streams.size >= streamsMax) return;
    this.#streams.add(stream);
    this.#interrupt();
  }

  async refresh(): Promise<void> {
    for (const stream of await listStreams(this.#options.database, streamsMax)) this.add(stream);
    this.#unusable.clear();
  }

  /** Forgets the groups after a reconnect, because they may have changed. */
  connected(): void {
    this.#grouped.clear();
    this.#unusable.clear();
    this.#interrupt();
  }

  async #read(): Promise<void> {
    const { signal } = this.#stopping;
    const { link, log } = this.#options;
    while (!signal.aborted) {
      this.#interrupted = false;
      try {
        if (link.isUp) await link.run((client) => this.#makeGroups(client));
        if (link.isUp && this.#grouped.size > 0) await this.#readOnce();
        else await this.#sleep(idleMs);
      } catch (error) {
        if (signal.aborted) return;
        // Deleting a key deletes its group, which may happen at any time. After any error from Redis the
        // groups are checked again.
        this.#grouped.clear();
        if (error instanceof RedisUnavailableError) log.debug('streams are not read', { error });
        else if (!isMissing(error)) log.warn('streams could not be read', { error });
        await this.#sleep(isMissing(error) ? pauseMs : idleMs);
      }
    }
  }

  async #readOnce(): Promise<void> {
    const { link, checker, consumer } = this.#options;
    const keys = [...this.#grouped].map((stream) => ({ key: keyOf(stream), id: '>' }));
    const COUNT = Math.max(1, Math.min(streamBatchMax, Math.floor(batchMax / keys.length)));
    const read: readonly { name: string; messages: Entry[] }[] | null = await link.run(
      (client) => client.xReadGroup(group, consumer, keys, { COUNT, BLOCK: blockMs }),
      answerMs,
    );
    for (const { name, messages } of read ?? []) await checker.checkNew(streamOf(name), messages);
  }

  async #makeGroups(client: RedisClient): Promise<void> {
    const missing = [...this.#streams].filter(
      (stream) => !this.#grouped.has(stream) && !this.#unusable.has(stream),
    );
    const made = await Promise.allSettled(
      missing.map((stream) => client.xGroupCreate(keyOf(stream), group, '0', { MKSTREAM: true })),
    );
    made.forEach((answer, i) => {
      const stream = missing[i] as string;
      if (answer.status === 'fulfilled' || errorTextOf(answer.reason, 'BUSYGROUP')) this.#grouped.add(stream);
      else this.#exclude(stream, answer.reason);
    });
  }

  #exclude(stream: string, error: unknown): void {
    this.#unusable.add(stream);
    if (this.#logged.has(stream)) return;
    this.#logged.add(stream);
    this.#options.log.warn('a stream cannot be read, and is left out until it can', { stream, error });
  }

  #interrupt(): void {
    this.#interrupted = true;
    this.#wake();
  }

  /** Sleeps until something has changed, or for `ms`. */
  async #sleep(ms: number): Promise<void> {
    if (this.#interrupted) return;
    const changed = new AbortController();
    this.#wake = () => changed.abort();
    const signal = AbortSignal.any([changed.signal, this.#stopping.signal]);
    await delay(ms, undefined, { signal }).catch(() => {});
    this.#wake = () => {};
  }
}

const errorTextOf = (error: unknown, word: string): boolean =>
  error instanceof Error && error.message.startsWith(word);

/** A stream or its group was deleted or replaced after its creation. */
const isMissing = (error: unknown): boolean =>
  ['NOGROUP', 'WRONGTYPE', 'UNBLOCKED'].some((word) => errorTextOf(error, word));
