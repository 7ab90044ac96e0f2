/**
 * Messages between the servers on one database, over LISTEN and NOTIFY on a connection of its own.
 *
 * Promises nothing about delivery: what others say while the connection is away is not heard, so whoever listens must
 * also look for itself now and then. What is sent while an earlier message is on its way, or while there is no
 * connection, goes out together with everything that has gathered; of that, what is said twice in the same words is heard
 * once. `start` connects and goes on trying, and says each time when others can be heard; `stop` hangs up.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { Log } from '../log.ts';

type OnMessage = (message: string) => void;

export interface Channel {
  start(onMessage: OnMessage, onListening?: () => void): void;
  send(message: string): void;
  stop(): Promise<void>;
}

/** For a database that no other server shares. */
export const silentChannel: Channel = { start: () => {}, send: () => {}, stop: async () => {} };

/** With a version, so that servers of another never have to read each other's messages. */
const channelName = 'leasehold_v1';
const retryMs = 1_000;
/** Messages that wait for the connection; hints older than these are not worth keeping. */
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
    await this.#client
      ?.end()
      .catch((error: unknown) => this.#log.debug('a listener did not hang up', { error }));
    await this.#connecting;
  }

  async #stayConnected(onMessage: OnMessage, onListening: () => void): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#listen(onMessage, onListening);
      } catch (error) {
        if (!signal.aborted) this.#log.warn('lost the connection that listens for other servers', { error });
      }
      await delay(retryMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Settles when the connection is over. */
  async #listen(onMessage: OnMessage, onListening: () => void): Promise<void> {
    const client = new pg.Client({
      connectionString: this.#url,
      application_name: 'leasehold listener',
      keepAlive: true,
      connectionTimeoutMillis: 5_000,
    });
    const over = new Promise<void>((resolve, reject) => {
      client.once('end', resolve);
      client.once('error', reject);
    });
    // The rejection is awaited below; until then it must not count as unhandled.
    over.catch(() => {});
    client.on('notification', ({ payload }) => payload !== undefined && onMessage(payload));
    try {
      await client.connect();
      await client.query(`listen ${channelName}`);
      // Whoever stops while the connection is made has nothing to hang up yet.
      if (this.#stopping.signal.aborted) return;
      this.#client = client;
      onListening();
      if (!this.#sending) void this.#drain();
      await over;
    } finally {
      this.#client = undefined;
      await client.end().catch((error: unknown) => this.#log.debug('a listener did not hang up', { error }));
    }
  }

  async #drain(): Promise<void> {
    this.#sending = true;
    try {
      while (this.#client && this.#outbox.length > 0) {
        const messages = this.#outbox;
        this.#outbox = [];
        await this.#client.query('select pg_notify($1, message) from unnest($2::text[]) as message', [
          channelName,
          messages,
        ]);
      }
    } catch (error) {
      this.#log.debug('could not tell the other servers', { error });
    } finally {
      this.#sending = false;
    }
  }
}
