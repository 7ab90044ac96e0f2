/**
 * Exchanges messages between the servers of one database, with LISTEN and NOTIFY on a separate connection.
 *
 * Guarantees:
 *
 * - Delivery is not guaranteed. A server misses what others send while its connection is down, so listeners
 *   must also poll at intervals.
 * - Messages are sent in batches: messages queued during a send or an outage leave together. PostgreSQL
 *   delivers identical messages of one batch once.
 * - Messages that are unconfirmed when a connection fails are sent again, so a listener may receive some
 *   twice.
 *
 * Lifecycle: `start` connects, reconnects after failures, and calls `onListening` after each connect. `stop`
 * closes the connection.
 *
 * Failure modes: a connection can die silently if the other host vanishes or a network device forgets it. TCP
 * keepalives notice that after minutes at best. The channel therefore sends `select 1` when nothing has
 * arrived for `pingMs`. If nothing arrives within `answerMs` of a query, it closes the connection and
 * connects again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Log } from '../../lib/log.ts';
import { hangUp, internalsOf } from './hang-up.ts';
import { ConnectionLostError } from './sql.ts';

type OnMessage = (message: string) => void;

export interface Channel {
  start(onMessage: OnMessage, onListening?: () => void): void;
  send(message: string): void;
  stop(): Promise<void>;
}

/** For a database that no other server shares. */
export const noopChannel: Channel = { start: () => {}, send: () => {}, stop: async () => {} };

/** Carries a version, so that servers never have to read messages of another version. */
const channelName = 'leasehold_v1';
const retryMs = 1_000;
const connectMs = 3_000;
const pingMs = 1_000;
const answerMs = 1_500;
/** Interval of the checks of the connection. */
const lookMs = 500;
/**
 * Limit of messages that wait for the connection. Further messages are dropped: they are hints, and listeners
 * poll.
 */
const outboxMax = 1_000;

export class PostgresChannel implements Channel {
  readonly #url: string;
  readonly #log: Log;
  readonly #stopping = new AbortController();
  #client: pg.Client | undefined;
  #outbox: string[] = [];
  #sending = false;
  #connecting: Promise<void> | undefined;

  constructor(url: string, log: Log) {
    this.#url = url;
    this.#log = log;
  }

  start(onMessage: OnMessage, onListening = () => {}): void {
    this.#connecting ??= this.#stayConnected(onMessage, onListening);
  }

  send(message: string): void {
    if (this.#outbox.length < outboxMax) this.#outbox.push(message);
    if (!this.#sending) void this.#drain();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#client) await hangUp(this.#client);
    await this.#connecting;
  }

  async #stayConnected(onMessage: OnMessage, onListening: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const beganAt = performance.now();
      try {
        await this.#listen(onMessage, onListening);
      } catch (error) {
        if (!signal.aborted) this.#log.warn('lost the connection that listens for other servers', { error });
      }
      // A connection that worked for a while is replaced at once.
      const pauseMs = performance.now() - beganAt > 2 * retryMs ? 0 : retryMs;
      await delay(pauseMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Settles when the connection has ended. */
  async #listen(onMessage: OnMessage, onListening: () => void): Promise<void> {
    const client = new pg.Client({
      connectionString: this.#url,
      application_name: 'leasehold listener',
      keepAlive: true,
      connectionTimeoutMillis: connectMs,
      query_timeout: answerMs,
    });
    const over = new Promise<void>((resolve, reject) => {
      client.once('end', resolve);
      // A connection may fail more than once while it ends, and an error without a listener would end the
      // process.
      client.on('error', reject);
    });
    // The rejection is awaited below; until then it must not count as unhandled.
    over.catch(() => {});
    let watch: NodeJS.Timeout | undefined;
    client.on('notification', ({ payload }) => payload !== undefined && onMessage(payload));
    try {
      await client.connect();
      await client.query(`listen ${channelName}`);
      // If `stop` ran during the connect, it found no connection to close.
      if (this.#stopping.signal.aborted) return;
      this.#client = client;
      watch = watchForSilence(client);
      onListening();
      if (!this.#sending) void this.#drain();
      await over;
    } finally {
      clearInterval(watch);
      this.#client = undefined;
      await hangUp(client);
    }
  }

  async #drain(): Promise<void> {
    this.#sending = true;
    let messages: string[] = [];
    try {
      while (this.#client && this.#outbox.length > 0) {
        messages = this.#outbox;
        this.#outbox = [];
        await this.#client.query('select pg_notify($1, message) from unnest($2::text[]) as message', [
          channelName,
          messages,
        ]);
      }
    } catch (error) {
      this.#log.debug('failed to notify the other servers', { error });
      this.#outbox = [...messages, ...this.#outbox].slice(0, outboxMax);
    } finally {
      this.#sending = false;
    }
  }
}

/** Closes the connection if a query was sent and the other side has not sent a byte within `answerMs`. */
function watchForSilence(client: pg.Client): NodeJS.Timeout {
  const { connection } = internalsOf(client);
  let bytes = connection.stream.bytesRead;
  let heardAt = performance.now();
  let askedAt: number | undefined;
  return setInterval(() => {
    const now = performance.now();
    if (connection.stream.bytesRead !== bytes) {
      bytes = connection.stream.bytesRead;
      heardAt = now;
      askedAt = undefined;
    } else if (askedAt !== undefined) {
      if (now - askedAt < answerMs) return;
      connection.emit('error', new ConnectionLostError('the database no longer answers on this connection'));
      connection.stream.destroy();
    } else if (internalsOf(client).readyForQuery === false) {
      askedAt = now;
    } else if (now - heardAt >= pingMs) {
      askedAt = now;
      // A failure ends the connection; `#listen` handles that.
      client.query('select 1').catch(() => {});
    }
  }, lookMs);
}
