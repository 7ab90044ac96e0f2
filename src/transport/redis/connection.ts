/**
 * One connection to Redis, which is reopened until it is stopped.
 *
 * Guarantees: each command settles soon. Without a connection it is rejected at once. If Redis does not
 * answer within the time limit, the command is rejected and the connection is closed. Answers come in order,
 * so no command behind one that hangs would be answered either. Reconnecting, with a backoff up to
 * `pauseMaxMs`, shows whether Redis still hangs.
 *
 * Lifecycle: `start` settles after the first attempt to connect, successful or not; further attempts follow
 * in the background. `stop` closes the connection and rejects commands in flight.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { createClient, type RedisClientType } from '@redis/client';
import { withTimeout } from '../../lib/async/with-timeout.ts';

export type RedisClient = RedisClientType;

/** How long Redis may take to answer, and to accept a connection. */
const answerMs = 1_500;
/** How long reading an answer that has arrived may take. */
const turnMs = 25;
const pauseMinMs = 50;
const pauseMaxMs = 1_000;

/** There is no connection, or it was lost before the answer came. */
export class RedisUnavailableError extends Error {
  override readonly name = 'RedisUnavailableError';
}

/** Redis is available, and carries the messages of another database. */
export class ForeignRedisError extends Error {
  override readonly name = 'ForeignRedisError';
}

export interface LinkOptions {
  url: string;
  /** The name that `CLIENT LIST` shows. */
  name: string;
  /** Checks whether the connection may be used, and throws if not. */
  admit?(client: RedisClient): Promise<void>;
  onUp?(): void;
  /** Called once for each outage, with the reason. */
  onDown?(reason: Error): void;
}

/** An open connection, and how to close it. */
interface Connection {
  client: RedisClient;
  over: Promise<Error>;
  end(reason: Error): void;
}

export class RedisConnection {
  readonly #options: LinkOptions;
  readonly #stopping = new AbortController();
  #connection: Connection | undefined;
  #staying: Promise<void> | undefined;
  #tried: Promise<void> | undefined;
  /** The current outage has been reported. */
  #isLogged = false;

  constructor(options: LinkOptions) {
    this.#options = options;
  }

  get isUp(): boolean {
    return this.#connection !== undefined;
  }

  async start(): Promise<void> {
    this.#tried ??= new Promise((resolve) => {
      this.#staying = this.#stayConnected(resolve);
    });
    await this.#tried;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#connection?.end(new RedisUnavailableError('the server is shutting down'));
    await this.#staying;
  }

  /** Closes the current connection; a new one is opened. */
  drop(reason: Error): void {
    this.#connection?.end(reason);
  }

  /** Runs commands on the connection, which Redis must answer within `limitMs`. */
  async run<T>(work: (client: RedisClient) => Promise<T>, limitMs = answerMs): Promise<T> {
    const connection = this.#connection;
    if (!connection) throw new RedisUnavailableError('there is no connection to Redis');
    const asked = work(connection.client).catch((cause: unknown) => {
      if (connection.client.isOpen) throw cause;
      throw new RedisUnavailableError('the connection to Redis was lost', { cause });
    });
    const answer = await withTimeout<T | typeof tooLate>(asked, limitMs, tooLate);
    if (answer !== tooLate) return answer;
    // This process may have been blocked; then the answer has arrived and only needs to be read.
    const read = await withTimeout<T | typeof tooLate>(asked, turnMs, tooLate);
    if (read !== tooLate) return read;
    const reason = new RedisUnavailableError(`Redis did not answer within ${limitMs} ms`);
    connection.end(reason);
    throw reason;
  }

  async #stayConnected(onTried: () => void): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        const connection = await connect(this.#options, signal);
        failures = 0;
        this.#connection = connection;
        this.#isLogged = false;
        this.#options.onUp?.();
        onTried();
        this.#logUnavailable(await connection.over);
      } catch (error) {
        this.#logUnavailable(error);
        onTried();
      }
      const pauseMs = Math.min(pauseMinMs * 2 ** Math.min(failures, 10), pauseMaxMs);
      // Jitter, so that servers that lost Redis together do not all reconnect at the same moment.
      await delay(pauseMs * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }

  #logUnavailable(error: unknown): void {
    this.#connection = undefined;
    if (this.#isLogged || this.#stopping.signal.aborted) return;
    this.#isLogged = true;
    this.#options.onDown?.(error instanceof Error ? error : new Error(String(error)));
  }
}

const tooLate = Symbol('too late');

/** A connection over which Redis has answered. */
async function connect({ url, name, admit }: LinkOptions, signal: AbortSignal): Promise<Connection> {
  const client: RedisClient = createClient({
    url,
    name,
    socket: { connectTimeout: answerMs, reconnectStrategy: false },
    // The client's own time limit ends when a command is written, so it does not detect a Redis that hangs.
    commandOptions: { timeout: 0 },
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
  });
  let end: (reason: Error) => void = () => {};
  const over = new Promise<Error>((resolve) => {
    end = (reason) => {
      resolve(reason);
      client.destroy();
    };
  });
  client.on('error', (error: Error) => end(error));
  const stop = () => end(new RedisUnavailableError('the server is shutting down'));
  signal.addEventListener('abort', stop);
  // While Redis loads its data, it accepts connections and answers every command with an error.
  const answered = client
    .connect()
    .then(() => client.ping())
    .then(async (pong) => {
      await admit?.(client);
      return pong;
    });
  let gaveUp = false;
  // A client that is destroyed before its socket is open still opens it.
  const closeLate = () => gaveUp && client.destroy();
  answered.then(closeLate, closeLate);
  try {
    const pong = await Promise.race([withTimeout<string | undefined>(answered, answerMs, undefined), over]);
    if (pong instanceof Error) throw pong;
    if (pong === undefined) throw new RedisUnavailableError(`Redis did not answer within ${answerMs} ms`);
    return { client, over, end };
  } catch (error) {
    gaveUp = true;
    client.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
