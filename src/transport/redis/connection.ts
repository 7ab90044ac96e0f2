/**
 * One connection to Redis that is made again for as long as it is wanted.
 *
 * Promises: what is asked of it settles soon. While there is no connection it is refused at once; what Redis does not
 * answer within its time is given up, and the connection with it, because answers come in order and nothing behind a
 * command that hangs would be answered either. A Redis that hangs is then told from one that is there by connecting
 * again, with pauses that grow to `pauseMaxMs`.
 *
 * `start` settles when the first attempt to connect has come to something, and goes on trying by itself; `stop` hangs up,
 * and fails what is under way.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { createClient, type RedisClientType } from '@redis/client';
import { withTimeout } from '../../lib/async/with-timeout.ts';

export type RedisClient = RedisClientType;

/** How long Redis may take to answer, and to let a connection in. */
const answerMs = 1_500;
/** How long an answer that has come may take to be read. */
const turnMs = 25;
const pauseMinMs = 50;
const pauseMaxMs = 1_000;

/** There is no connection, or it was lost before the answer came. */
export class RedisUnavailableError extends Error {
  override readonly name = 'RedisAwayError';
}

/** It is there, and carries the messages of another database. */
export class ForeignRedisError extends Error {
  override readonly name = 'ForeignRedisError';
}

export interface LinkOptions {
  url: string;
  /** What `CLIENT LIST` of Redis shows. */
  name: string;
  /** Looks whether the connection may be used, and throws where it may not. */
  admit?(client: RedisClient): Promise<void>;
  onUp?(): void;
  /** Called once for each time that it is away, with the reason. */
  onDown?(reason: Error): void;
}

/** A connection that is up, and how it is given up. */
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
  /** The present time away was told of. */
  #told = false;

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

  /** Gives the present connection up; it is made again. */
  drop(reason: Error): void {
    this.#connection?.end(reason);
  }

  /** Does something with the connection, which has to be answered within `limitMs`. */
  async run<T>(work: (client: RedisClient) => Promise<T>, limitMs = answerMs): Promise<T> {
    const connection = this.#connection;
    if (!connection) throw new RedisUnavailableError('there is no connection to Redis');
    const asked = work(connection.client).catch((cause: unknown) => {
      if (connection.client.isOpen) throw cause;
      throw new RedisUnavailableError('the connection to Redis was lost', { cause });
    });
    const answer = await withTimeout<T | typeof tooLate>(asked, limitMs, tooLate);
    if (answer !== tooLate) return answer;
    // It may have been this process that stood still, and then the answer is there and has only to be read.
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
        this.#told = false;
        this.#options.onUp?.();
        onTried();
        this.#logUnavailable(await connection.over);
      } catch (error) {
        this.#logUnavailable(error);
        onTried();
      }
      const pauseMs = Math.min(pauseMinMs * 2 ** Math.min(failures, 10), pauseMaxMs);
      // Servers that have lost Redis together need not all come back at the same moment.
      await delay(pauseMs * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }

  #logUnavailable(error: unknown): void {
    this.#connection = undefined;
    if (this.#told || this.#stopping.signal.aborted) return;
    this.#told = true;
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
    // Its own time limit ends when a command is written, so it says nothing of a Redis that hangs.
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
  // A Redis that is still loading its data lets connections in and answers nothing but errors.
  const answered = client
    .connect()
    .then(() => client.ping())
    .then(async (pong) => {
      await admit?.(client);
      return pong;
    });
  let gaveUp = false;
  // A client that is destroyed before its socket is open opens it all the same.
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
