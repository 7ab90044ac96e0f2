import type { PGlite } from '@electric-sql/pglite';
import type { SessionQueue } from './session-queue.ts';

const TICK_MS = 1_000;
const CHECKPOINT_WAL_BYTES = 32 * 1024 * 1024;

/** Checkpoints recycle old log files instead of deleting them; these settings bound how many are kept. */
export const WAL_SETTINGS = ['max_wal_size=128MB', 'min_wal_size=32MB'];

/** The rule of PostgreSQL's autovacuum; a table's own settings override those of the server. */
const MOST_DUE_TABLE = `
  with candidate as (
    select s.relid::regclass::text as name, s.n_dead_tup as dead, greatest(c.reltuples, 0) as rows,
      (select jsonb_object_agg(option_name, option_value) from pg_options_to_table(c.reloptions)) as own
    from pg_stat_user_tables s join pg_class c on c.oid = s.relid
  )
  select name from candidate
  where coalesce(own->>'autovacuum_enabled', 'true')::boolean
    and dead > coalesce(own->>'autovacuum_vacuum_threshold', current_setting('autovacuum_vacuum_threshold'))::float8
      + coalesce(own->>'autovacuum_vacuum_scale_factor', current_setting('autovacuum_vacuum_scale_factor'))::float8 * rows
  order by dead desc limit 1`;

/**
 * Does the work of a PostgreSQL server's background processes, which the embedded one lacks: checkpoints and
 * vacuuming.
 *
 * Without checkpoints the write-ahead log grows without limit, and with it the restart time after a kill.
 * Without vacuuming every heartbeat leaves a dead tuple for good. Once a second, between two transactions, it
 * does at most one thing: a checkpoint if enough log was written, else a vacuum of the due table with the
 * most dead tuples. A second without writes costs one read of the log's position.
 *
 * `start` and `stop` are idempotent. `runOnce` does the work of one second and resolves to what it did.
 */
export class Housekeeping {
  readonly #database: PGlite;
  readonly #queue: Pick<SessionQueue, 'whenIdle'>;
  #timer: NodeJS.Timeout | undefined;
  #busy = false;
  #checkpointAt: number | undefined;
  #lookedAt: number | undefined;

  constructor(database: PGlite, queue: Pick<SessionQueue, 'whenIdle'>) {
    this.#database = database;
    this.#queue = queue;
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async runOnce(): Promise<'nothing' | 'checkpoint' | 'vacuum'> {
    const position = await this.#walPosition();
    if (position === this.#lookedAt) return 'nothing';
    this.#checkpointAt ??= position;
    if (position - this.#checkpointAt > CHECKPOINT_WAL_BYTES) {
      await this.#database.exec('checkpoint');
      this.#checkpointAt = position;
      return 'checkpoint';
    }
    const due = await this.#database.query<{ name: string }>(MOST_DUE_TABLE);
    const table = due.rows[0]?.name;
    if (table !== undefined) {
      await this.#database.exec(`vacuum (analyze) ${table}`);
      return 'vacuum';
    }
    this.#lookedAt = position;
    return 'nothing';
  }

  /** A long transaction makes one tick wait; later ticks are skipped, not queued. */
  #tick(): void {
    if (this.#busy) return;
    this.#busy = true;
    void this.#queue
      .whenIdle(async () => {
        if (this.#timer) await this.runOnce();
      })
      .catch((error: unknown) => {
        // The next tick tries again; a failed vacuum must not end a database that serves.
        process.emitWarning(`the embedded database could not be tidied: ${String(error)}`);
      })
      .finally(() => {
        this.#busy = false;
      });
  }

  /** Also flushes the counts of dead tuples, which otherwise lag by up to a second, or by an idle night. */
  async #walPosition(): Promise<number> {
    const { rows } = await this.#database.query<{ at: string }>(
      `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::text as at, pg_stat_force_next_flush()`,
    );
    return Number(rows[0]?.at);
  }
}
