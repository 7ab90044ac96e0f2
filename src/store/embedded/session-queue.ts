import {
  asksForReady,
  type BackendState,
  eachMessage,
  isTerminate,
  notificationsIn,
  queryMessage,
  readyOnce,
  SYNC_MESSAGE,
  startupLength,
  stateAfter,
} from './wire.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** The only PostgreSQL backend. It runs a batch of messages and returns everything it answers. */
export interface Backend {
  run(messages: Bytes): Promise<Bytes>;
}

export interface SessionQueueOptions {
  backend: Backend;
  /** The backend's answer to its first connection; repeated to every new session. */
  greeting: Bytes;
  answer(session: number, bytes: Bytes): void;
}

interface Session {
  /** The start of a message whose rest has not arrived. */
  partial: Bytes;
  greeted: boolean;
}

interface Batch {
  id: number;
  messages: Bytes;
}

/**
 * Lets many sessions share the one backend without ever mixing their transactions.
 *
 * Guarantees:
 *
 * - A batch of messages runs when no session holds the backend, in order of arrival.
 * - A session holds the backend from its first message until PostgreSQL is ready and outside a transaction.
 *   All other sessions wait.
 * - State that outlives a transaction in PostgreSQL (`set` without `local`, temporary tables, advisory locks)
 *   is shared by all sessions, as behind any transaction-level connection pool.
 * - A session that ends inside a transaction is rolled back.
 *
 * Lifecycle: there is nothing to start. `settle` runs everything received so far, rolls back what is still
 * open, and resolves. `whenIdle` runs other work on the backend between two transactions.
 */
export class SessionQueue {
  readonly #options: SessionQueueOptions;
  readonly #sessions = new Map<number, Session>();
  readonly #waiting: Batch[] = [];
  readonly #errands: (() => Promise<void>)[] = [];
  #holder: number | undefined;
  #settling = false;
  #running: Promise<void> | undefined;

  constructor(options: SessionQueueOptions) {
    this.#options = options;
  }

  receive(id: number, bytes: Bytes): void {
    const session = this.#session(id);
    let rest = session.partial.length > 0 ? joined(session.partial, bytes) : bytes;
    if (!session.greeted) {
      const length = startupLength(rest);
      if (length !== undefined && rest.length >= length) {
        session.greeted = true;
        rest = rest.slice(length);
        this.#options.answer(id, this.#options.greeting.slice());
      }
    }
    if (isTerminate(rest)) {
      this.end(id);
      return;
    }
    const whole = session.greeted ? eachMessage(rest, () => {}) : 0;
    session.partial = rest.slice(whole);
    if (whole === 0) return;
    this.#waiting.push({ id, messages: whole === rest.length ? rest : rest.slice(0, whole) });
    this.#pump();
  }

  /** Ends a session: its batches that have not begun are dropped, and its open transaction is rolled back. */
  end(id: number): void {
    if (this.#sessions.delete(id)) this.#pump();
  }

  /** Runs `errand` when no session holds the backend. */
  whenIdle(errand: () => Promise<void>): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#errands.push(() => errand().then(resolve, reject));
    this.#pump();
    return promise;
  }

  async settle(): Promise<void> {
    this.#settling = true;
    this.#pump();
    await this.#running;
  }

  #session(id: number): Session {
    let session = this.#sessions.get(id);
    if (!session) {
      session = { partial: new Uint8Array(0), greeted: false };
      this.#sessions.set(id, session);
    }
    return session;
  }

  #pump(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  async #run(): Promise<void> {
    for (;;) {
      const errand = this.#holder === undefined ? this.#errands.shift() : undefined;
      const batch = errand ? undefined : this.#next();
      if (errand) await errand();
      else if (batch) await this.#execute(batch);
      else if (this.#holderIsLost()) await this.#rollBack();
      else return;
    }
  }

  #next(): Batch | undefined {
    const holder = this.#holder;
    const at = this.#waiting.findIndex(({ id }) => holder === undefined || id === holder);
    if (at < 0) return undefined;
    const [batch] = this.#waiting.splice(at, 1);
    return batch && this.#sessions.has(batch.id) ? batch : this.#next();
  }

  async #execute({ id, messages }: Batch): Promise<void> {
    const answer = readyOnce(await this.#options.backend.run(messages));
    this.#holder = stateAfterAll(messages, answer) === 'idle' ? undefined : id;
    for (const notification of notificationsIn(answer)) {
      for (const [other, { greeted }] of this.#sessions) {
        if (greeted && other !== id) this.#options.answer(other, notification.slice());
      }
    }
    if (this.#sessions.has(id)) this.#options.answer(id, answer);
  }

  #holderIsLost(): boolean {
    return this.#holder !== undefined && (this.#settling || !this.#sessions.has(this.#holder));
  }

  /**
   * Sends Sync first: the session may have ended inside an extended query, and PostgreSQL then skips all
   * else.
   */
  async #rollBack(): Promise<void> {
    await this.#options.backend.run(SYNC_MESSAGE);
    await this.#options.backend.run(queryMessage('rollback'));
    this.#holder = undefined;
  }
}

function stateAfterAll(messages: Bytes, answer: Bytes): BackendState {
  let owesReady = false;
  eachMessage(messages, (type) => {
    owesReady = asksForReady(type);
  });
  const state = stateAfter(answer);
  if (owesReady && state === 'busy') throw new Error('PostgreSQL broke off in the middle of an answer');
  return state;
}

function joined(first: Bytes, second: Bytes): Bytes {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
