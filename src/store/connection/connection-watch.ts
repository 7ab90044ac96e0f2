/**
 * Finds pool connections that died silently, and closes them.
 *
 * Problem: a host that vanishes, or a network device that forgets a connection, sends neither FIN nor RST.
 * TCP notices after minutes: keepalives do not run while sent data is unacknowledged, and Node cannot set
 * `TCP_USER_TIMEOUT`. A statement timeout cannot distinguish such a connection from a long statement or a
 * wait for a lock. The state of the backend can, so the watch reads it over another connection.
 *
 * Detection: a connection is suspected when it waits for an answer and has not read a byte for `quietMs`. The
 * watch then reads `pg_stat_activity` over a new connection. The suspect is dead in two cases:
 *
 * - Its backend no longer exists.
 * - Two checks `confirmMs` apart find the backend waiting for its client, while the client waits for the
 *   backend.
 *
 * A backend that works, waits for a lock or waits for a standby is alive, however long it takes.
 *
 * Guarantees:
 *
 * - A dead connection is closed within about 4 s of the statement's start.
 * - Its backend is terminated, which frees its locks and fixes the outcome of its statement.
 * - Its statements fail with a `ConnectionLostError`.
 * - The pool's idle connections are closed as well: the same cause has most likely killed them, and
 *   connecting costs milliseconds.
 *
 * Failure modes: the watch closes nothing if it cannot open a new connection, or if a pooler hides the
 * process ids of backends. It costs nothing while every waiting connection also receives.
 */
import type { EventEmitter } from 'node:events';
import pg from 'pg';
import { hangUp } from './hang-up.ts';
import type { PreparedClient } from './prepared-client.ts';
import { ConnectionLostError } from './sql.ts';

const inspectMs = 500;
const quietMs = 1_000;
const confirmMs = 700;
const connectMs = 2_000;
const answerMs = 2_000;

interface Observed {
  /** The pool has lent it. */
  isCheckedOut: boolean;
  bytesRead: number;
  /** Start of the wait without a byte read; undefined while it does not wait. */
  quietSinceMs: number | undefined;
  /** Time of the first check that found its backend waiting for it. */
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
  readonly #clients = new Map<PreparedClient, Observed>();
  #timer: NodeJS.Timeout | undefined;
  #looking = false;

  /** `config` is the pool's configuration. */
  constructor(config: pg.ClientConfig) {
    this.#config = config;
  }

  /** Watches every connection of the pool from its login to its end. */
  attach(pool: EventEmitter): void {
    pool.on('connect', (client: PreparedClient) => {
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
    pool.on('acquire', (client: PreparedClient) => this.#checkOut(client, true));
    pool.on('release', (_error: unknown, client: PreparedClient) => this.#checkOut(client, false));
    pool.on('remove', (client: PreparedClient) => this.#forget(client));
  }

  /** Closes connections that wait for no answer, are asked to end, and whose other side does not respond. */
  closeEnding(): void {
    for (const [client, { isCheckedOut }] of this.#clients)
      if (!isCheckedOut && !client.isWaiting) client.fail(new ConnectionLostError('the pool is closed'));
  }

  #checkOut(client: PreparedClient, isLent: boolean): void {
    const observed = this.#clients.get(client);
    if (observed) observed.isCheckedOut = isLent;
  }

  #forget(client: PreparedClient): void {
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

  /** Connections that wait and have read nothing for `quietMs`. */
  #suspects(): PreparedClient[] {
    const now = performance.now();
    return [...this.#clients].flatMap(([client, { quietSinceMs, bytesRead }]) => {
      const isQuiet = quietSinceMs !== undefined && now - quietSinceMs >= quietMs;
      // If this process was stalled, the answers have arrived and only have to be read.
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
      // The database cannot be queried. Its connections may be alive, so they stay open.
    } finally {
      await hangUp(witness);
    }
  }

  async #decide(witness: pg.Client): Promise<void> {
    const asked = this.#suspects();
    const pids = [...asked.map(({ backend }) => backend.pid), witnessPid(witness)];
    const { rows } = await witness.query<Backend>(findBackends, [pids]);
    const backends = new Map(rows.map((row) => [row.pid, row]));
    // A pooler reports other process ids to its clients than those of the backends.
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

  #isDead(client: PreparedClient, backends: ReadonlyMap<number, Backend>): boolean {
    const observed = this.#clients.get(client);
    if (!observed) return false;
    const { pid, startedAt } = client.backend;
    const found = backends.get(pid);
    // After a failover another server may have given the same process id to another process.
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
