import pg from 'pg';
import { cancelStatement } from './canceller.ts';
import { internalsOf } from './hang-up.ts';
import { sessionSettings } from './session-settings.ts';
import { ConnectionLostError, UnconfirmedCommitError } from './sql.ts';

/** The statements that are worth preparing, and their names. */
const names = new Map<string, string>();

/**
 * Marks a statement as one that is run all the time. Each connection parses and plans it once, for whatever values, and
 * afterwards only binds and runs it; planning a statement of five parts costs more than running it for a few rows. All others
 * are planned for the values that they come with: what a filter leaves out, their plan leaves out.
 */
export function prepared(text: string): string {
  // The same text twice is the same statement, and keeps its name.
  if (!names.has(text)) names.set(text, `leasehold_${names.size}`);
  return text;
}

/** All that are marked, of the modules that have been loaded. */
export const preparedStatements = (): string[] => [...names.keys()];

const { plan_cache_mode: preparedPlans } = sessionSettings;

type Shape = (values: unknown[]) => unknown;

/** The shapes of what hot statements return. */
const shapes = new Map<string, Shape>();

/**
 * Makes an object of a row's values, as a literal would. The driver puts one together name by name, which from a dozen
 * columns on is an object that is slow to make and slow to read. The names are those of our own statements.
 */
function shapeOf(fields: readonly { name: string }[]): Shape {
  const members = fields.map(({ name }, i) => `${JSON.stringify(name)}: values[${i}]`);
  return new Function('values', `return { ${members.join(', ')} }`) as Shape;
}

const counts = new WeakMap<readonly unknown[], number>();

/** How many rows a statement has read or changed, by the rows that it returned. Of hot statements only those are counted. */
export const affectedRows = (rows: readonly unknown[]): number => counts.get(rows) ?? rows.length;

/** A statement that was never begun, because nobody waited for it any more. */
export class AbandonedError extends Error {
  override readonly name = 'AbortError';
}

interface Config {
  stream?: unknown;
}

let clients = 0;

/**
 * A connection that prepares hot statements, and that asks PostgreSQL to stop a statement when its signal fires.
 *
 * That request goes over a connection of its own, because here it would wait behind the very statement it should stop, and the
 * statement counts as over only when it has been answered, so that it can never hit the next one of this connection. The
 * embedded database cannot be interrupted; there a statement that has begun runs to its end.
 */
export class PreparingClient extends pg.Client {
  /** Part of the names, because all connections to the embedded database share one session. */
  readonly #number = clients++;
  readonly #config: Config;
  #gathers = false;
  #startedAt: string | undefined;

  constructor(config: Config) {
    super(config as pg.ClientConfig);
    this.#config = config;
    // What breaks the connection rejects its statements as well. Without a listener Node would end the process.
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

  /** The process that serves this connection, as `identify` has found it. */
  get backend(): { pid: number; startedAt: string | undefined } {
    return { pid: internalsOf(this).processID ?? 0, startedAt: this.#startedAt };
  }

  /** Asks when its backend was started, which tells it from another server's with the same process id. */
  identify(): void {
    super
      .query<{ at: string }>(
        'select extract(epoch from backend_start)::text as at from pg_stat_get_activity(pg_backend_pid())',
      )
      .then(
        ({ rows }) => {
          this.#startedAt = rows[0]?.at;
        },
        // A connection that fails so early fails its first statement as well.
        () => {},
      );
  }

  /** Rejects every statement in flight and closes the connection. */
  fail(error: Error): void {
    const { connection } = internalsOf(this);
    // An answer that has arrived with the reason must not be taken for success, so the driver is told before it reads on.
    connection.emit('error', error);
    connection.stream.destroy();
  }

  /** Runs a statement, behind those that were sent before. `signal` ends it. */
  async run<Row>(text: string, values: readonly unknown[], signal: AbortSignal | undefined): Promise<Row[]> {
    if (signal?.aborted)
      throw new AbandonedError('nobody waits for this statement', { cause: signal.reason });
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
   * Runs a statement that is planned for its values. The way back is sent right behind it, because more may have been sent
   * already, and others may share the session; but not where somebody may ask to stop the statement, and stop that in its place.
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

  /** Nobody waits for it. What goes wrong here goes wrong for the statement as well, or is undone with its transaction. */
  #plan(mode: string): void {
    super.query(`set plan_cache_mode = ${mode}`).catch(() => {});
  }

  /** What is asked in one turn of the event loop leaves in one piece, and is read in one. */
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
      // A cancel that may still be on its way would hit the next statement of this connection.
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
