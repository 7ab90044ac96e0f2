/**
 * Finds connections of the pool that have died in silence, and closes them.
 *
 * A host that vanishes, or a device between that forgets a connection, sends neither FIN nor RST. TCP notices after
 * minutes: its keepalives do not run while sent data is unacknowledged, and Node cannot set `TCP_USER_TIMEOUT`. A time limit for
 * statements cannot tell such a connection from a long statement or a wait for a lock. The backend can: it is asked for over
 * another connection.
 *
 * A connection is suspected when it waits for an answer and has not read a byte for `quietMs`. Then `pg_stat_activity` is
 * read over a new connection. The connection is dead when its backend is gone, or when the backend waits for its client in two
 * looks that are `confirmMs` apart, while the client still waits for the backend. A backend that works, waits for a lock
 * or waits for a standby is alive, however long it takes.
 *
 * A dead connection is closed within about 4 s of the statement's begin. Its backend is terminated, so that its locks are free and
 * the outcome of its statement is fixed. Its statements fail with a `ConnectionLostError`. The idle connections of the pool are closed
 * with it, because what killed one in silence has most likely killed them too, and connecting costs milliseconds.
 *
 * Nothing is closed where nothing can be learned: when no new connection can be made, or when a pooler stands between, which
 * hides the process ids of backends. Costs nothing while every connection that waits also receives.
 */
import type { EventEmitter } from 'node:events';
import pg from 'pg';
import { hangUp } from './hang-up.ts';
import type { PreparingClient } from './prepared-client.ts';
import { ConnectionLostError } from './sql.ts';

const inspectMs = 500;
const quietMs = 1_000;
const confirmMs = 700;
const connectMs = 2_000;
const answerMs = 2_000;

interface Observed {
  /** Lent by the pool. */
  isCheckedOut: boolean;
  bytesRead: number;
  /** Since when it has waited without reading a byte; undefined while it does not wait. */
  quietSinceMs: number | undefined;
  /** When its backend was first found waiting for it. */
  suspectedAtMs: number | undefined;
}

interface Backend {
  pid: number;
  startedAt: string;
  awaitsClient: boolean;
}

const findBackends = `select pid, extract(epoch from backend_start)::text as "startedAt",
    coalesce(wait_event_type = 'Client', false) as "awaitsClient"
  from pg_stat_activity where pid = any ($1::int[])`;
const terminate = `select pg_terminate_backend(pid) from pg_stat_activity
  where pid = $1 and extract(epoch from backend_start)::text = $2`;

export class ConnectionWatch {
  readonly #config: pg.ClientConfig;
  readonly #clients = new Map<PreparingClient, Observed>();
  #timer: NodeJS.Timeout | undefined;
  #looking = false;

  /** `config` is that of the pool. */
  constructor(config: pg.ClientConfig) {
    this.#config = config;
  }

  /** Watches every connection of the pool, from its login to its end. */
  attach(pool: EventEmitter): void {
    pool.on('connect', (client: PreparingClient) => {
      this.#clients.set(client, {
        isCheckedOut: true,
        bytesRead: 0,
        quietSinceMs: undefined,
        suspectedAtMs: undefined,
      });
      client.identify();
      client.once('end', () => this.#forget(client));
      this.#timer ??= setInterval(() => this.#inspect(), inspectMs).unref();
    });
    pool.on('acquire', (client: PreparingClient) => this.#checkOut(client, true));
    pool.on('release', (_error: unknown, client: PreparingClient) => this.#checkOut(client, false));
    pool.on('remove', (client: PreparingClient) => this.#forget(client));
  }

  /** Closes connections that wait for nothing and have been asked to end, but whose other side does not answer. */
  closeEnding(): void {
    for (const [client, { isCheckedOut }] of this.#clients)
      if (!isCheckedOut && !client.isWaiting) client.fail(new ConnectionLostError('the pool is closed'));
  }

  #checkOut(client: PreparingClient, isLent: boolean): void {
    const observed = this.#clients.get(client);
    if (observed) observed.isCheckedOut = isLent;
  }

  #forget(client: PreparingClient): void {
    this.#clients.delete(client);
    if (this.#clients.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #inspect(): void {
    const now = performance.now();
    for (const [client, observed] of this.#clients) {
      const { bytesRead } = client;
      if (!client.isWaiting || bytesRead !== observed.bytesRead) {
        observed.quietSinceMs = client.isWaiting ? now : undefined;
        observed.suspectedAtMs = undefined;
      } else observed.quietSinceMs ??= now;
      observed.bytesRead = bytesRead;
    }
    if (this.#looking || this.#suspects().length === 0) return;
    this.#looking = true;
    void this.#examine().finally(() => {
      this.#looking = false;
    });
  }

  /** Those that wait, and have read nothing for too long. */
  #suspects(): PreparingClient[] {
    const now = performance.now();
    return [...this.#clients].flatMap(([client, { quietSinceMs, bytesRead }]) => {
      const isQuiet = quietSinceMs !== undefined && now - quietSinceMs >= quietMs;
      // What stood still may be this process: its answers have arrived, and only have to be read.
      return isQuiet && client.isWaiting && client.bytesRead === bytesRead ? client : [];
    });
  }

  async #examine(): Promise<void> {
    const witness = new pg.Client({
      ...this.#config,
      application_name: 'leasehold connection check',
      connectionTimeoutMillis: connectMs,
      query_timeout: answerMs,
    });
    witness.on('error', () => {});
    try {
      await witness.connect();
      await this.#decide(witness);
    } catch {
      // The database cannot be asked. Its connections may be alive, and stay.
    } finally {
      await hangUp(witness);
    }
  }

  async #decide(witness: pg.Client): Promise<void> {
    const asked = this.#suspects();
    const pids = [...asked.map(({ backend }) => backend.pid), witnessPid(witness)];
    const { rows } = await witness.query<Backend>(findBackends, [pids]);
    const backends = new Map(rows.map((row) => [row.pid, row]));
    // A pooler tells its clients other process ids than those of the backends.
    if (!backends.has(witnessPid(witness))) return;
    const still = new Set(this.#suspects());
    const dead = asked.filter((client) => still.has(client) && this.#isDead(client, backends));
    if (dead.length === 0) return;
    for (const { backend } of dead) await witness.query(terminate, [backend.pid, backend.startedAt]);
    for (const client of dead) client.fail(new ConnectionLostError('the connection died in silence'));
    for (const [client, { isCheckedOut }] of this.#clients)
      if (!isCheckedOut)
        client.fail(new ConnectionLostError('another connection of the pool died in silence'));
  }

  #isDead(client: PreparingClient, backends: ReadonlyMap<number, Backend>): boolean {
    const observed = this.#clients.get(client);
    if (!observed) return false;
    const { pid, startedAt } = client.backend;
    const found = backends.get(pid);
    // After a failover another server may have given the same process id to something else.
    if (!found || (startedAt !== undefined && found.startedAt !== startedAt)) return true;
    if (!found.awaitsClient) {
      observed.suspectedAtMs = undefined;
      return false;
    }
    observed.suspectedAtMs ??= performance.now();
    return performance.now() - observed.suspectedAtMs >= confirmMs;
  }
}

const witnessPid = (witness: pg.Client): number => (witness as unknown as { processID: number }).processID;
