import pg from 'pg';
import { cancelStatement } from './canceller.ts';
import { internalsOf } from './hang-up.ts';
import { sessionSettings } from './session-settings.ts';
import { ConnectionLostError, UnconfirmedCommitError } from './sql.ts';

/** The names of the prepared statements, by text. */
const names = new Map<string, string>();

/**
 * Marks a frequent statement for preparation. Each connection parses and plans it once, for any values, and
 * then only binds and executes it: planning a statement of five parts costs more than running it for a few
 * rows. PostgreSQL plans all other statements for their actual values, so their plans omit what a filter
 * omits.
 */
export function prepared(text: string): string {
  // The same text is the same statement, and keeps its name.
  if (!names.has(text)) names.set(text, `leasehold_${names.size}`);
  return text;
}

/** All prepared statements of the modules that have been loaded. */
export const preparedStatements = (): string[] => [...names.keys()];

const { plan_cache_mode: preparedPlans } = sessionSettings;

type Shape = (values: unknown[]) => unknown;

/** Row constructors of prepared statements, by text. */
const shapes = new Map<string, Shape>();

/**
 * Builds an object from a row's values, like an object literal. The driver assigns property by property, and
 * from about a dozen columns on the result is slow to create and slow to read. The names come from our own
 * statements.
 */
function shapeOf(fields: readonly { name: string }[]): Shape {
  const members = fields.map(({ name }, i) => `${JSON.stringify(name)}: values[${i}]`);
  return new Function('values', `return { ${members.join(', ')} }`) as Shape;
}

const counts = new WeakMap<readonly unknown[], number>();

/**
 * Number of rows that a statement read or changed, by its returned rows. A prepared statement counts only the
 * rows it returns.
 */
export const affectedRows = (rows: readonly unknown[]): number => counts.get(rows) ?? rows.length;

/** A statement that was never sent, because its caller had already stopped waiting. */
export class AbandonedError extends Error {
  override readonly name = 'AbortError';
}

interface Config {
  stream?: unknown;
}

let clients = 0;

/**
 * A connection that prepares frequent statements, and that cancels a statement when its signal fires.
 *
 * The cancel request uses a separate connection, because on this one it would wait behind the statement that
 * it should stop. A cancelled statement counts as ended only when the request has been answered, so that it
 * can never hit this connection's next statement. The embedded database cannot be interrupted; a statement
 * that has begun there runs to its end.
 */
export class PreparedClient extends pg.Client {
  /** Part of the statement names, because all connections to the embedded database share one session. */
  readonly #number = clients++;
  readonly #config: Config;
  #gathers = false;
  #startedAt: string | undefined;

  constructor(config: Config) {
    super(config as pg.ClientConfig);
    this.#config = config;
    // A connection error also rejects the statements. Without a listener the error would end the process.
    this.on('error', () => {});
    this.on('notice', ({ routine }) => {
      // The text of the warning is translated; the name of the routine that sends it is not.
      if (routine === 'SyncRepWaitForLSN') this.fail(new UnconfirmedCommitError());
    });
  }

  /** A statement is in flight. */
  get isWaiting(): boolean {
    return internalsOf(this).readyForQuery === false;
  }

  get bytesRead(): number {
    return internalsOf(this).connection.stream.bytesRead ?? 0;
  }

  /** The backend process of this connection, as `identify` read it. */
  get backend(): { pid: number; startedAt: string | undefined } {
    return { pid: internalsOf(this).processID ?? 0, startedAt: this.#startedAt };
  }

  /**
   * Reads the start time of the backend, which distinguishes it from another server's with the same process
   * id.
   */
  identify(): void {
    super
      .query<{ at: string }>(
        'select extract(epoch from backend_start)::text as at from pg_stat_get_activity(pg_backend_pid())',
      )
      .then(
        ({ rows }) => {
          this.#startedAt = rows[0]?.at;
        },
        // A connection that fails this early also fails its first statement.
        () => {},
      );
  }

  /** Rejects every statement in flight and closes the connection. */
  fail(error: Error): void {
    const { connection } = internalsOf(this);
    // The driver gets the error before it reads on, because an answer that arrived with it must not count as
    // success.
    connection.emit('error', error);
    connection.stream.destroy();
  }

  /** Runs a statement after those that were sent before it. `signal` cancels it. */
  async run<Row>(text: string, values: readonly unknown[], signal: AbortSignal | undefined): Promise<Row[]> {
    if (signal?.aborted)
      throw new AbandonedError('no caller waits for this statement', { cause: signal.reason });
    this.#gather();
    const asked = { ...this.#named(text), values: values as unknown[] };
    if (asked.name === undefined) {
      const { rows, rowCount } = await this.#runPlanned(values, signal, () => super.query(asked));
      counts.set(rows, rowCount ?? rows.length);
      return rows as Row[];
    }
    const inColumns: pg.QueryArrayConfig = { ...asked, rowMode: 'array' };
    const { rows, fields } = await this.#runUntil(signal, () => super.query<unknown[]>(inColumns));
    if (rows.length === 0) return [];
    const shape = shapes.get(text) ?? shapeOf(fields);
    shapes.set(text, shape);
    return rows.map((row) => shape(row)) as Row[];
  }

  /**
   * Runs a statement that PostgreSQL plans for its values. The reset of the plan mode is sent right behind
   * it, because more statements may already be queued and other connections may share the session. If a
   * signal could cancel the statement, the reset is sent after the answer, because the cancel could hit the
   * reset instead.
   */
  async #runPlanned<T>(
    values: readonly unknown[],
    signal: AbortSignal | undefined,
    send: () => Promise<T>,
  ): Promise<T> {
    if (values.length === 0) return this.#runUntil(signal, send);
    this.#plan('force_custom_plan');
    const running = this.#runUntil(signal, send);
    const isStoppable = signal !== undefined && this.#config.stream === undefined;
    if (!isStoppable) this.#plan(preparedPlans);
    try {
      return await running;
    } finally {
      if (isStoppable) this.#plan(preparedPlans);
    }
  }

  /** Not awaited. An error here also fails the statement, or is undone with its transaction. */
  #plan(mode: string): void {
    super.query(`set plan_cache_mode = ${mode}`).catch(() => {});
  }

  /** Statements sent in one turn of the event loop leave in one packet, and are read in one. */
  #gather(): void {
    if (this.#gathers) return;
    this.#gathers = true;
    const { stream } = internalsOf(this).connection;
    stream.cork();
    process.nextTick(() => {
      this.#gathers = false;
      stream.uncork();
    });
  }

  #named(text: string): { text: string; name?: string } {
    const name = names.get(text);
    return name === undefined ? { text } : { name: `${name}_${this.#number}`, text };
  }

  async #runUntil<T>(signal: AbortSignal | undefined, run: () => Promise<T>): Promise<T> {
    if (!signal || this.#config.stream !== undefined) return run();
    let stopping: Promise<'settled' | 'unknown'> | undefined;
    const stop = () => {
      stopping = this.#stopStatement();
    };
    signal.addEventListener('abort', stop, { once: true });
    try {
      return await run();
    } finally {
      signal.removeEventListener('abort', stop);
      // A cancel that may still arrive would hit the next statement of this connection.
      if ((await stopping) === 'unknown') this.fail(new ConnectionLostError('a cancel was not answered'));
    }
  }

  #stopStatement(): Promise<'settled' | 'unknown'> {
    // The pool hides the password when its options are copied.
    const { password } = this;
    const config: pg.ClientConfig = { ...(this.#config as pg.ClientConfig), ...(password && { password }) };
    return cancelStatement(config, internalsOf(this).processID ?? 0);
  }
}
