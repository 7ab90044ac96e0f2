/**
 * Logs an outage of the database as one event: a line when it begins, one every `remindMs`, and one with its
 * duration when it ends. Warnings that services and calls would log because of it are counted instead.
 *
 * A warning about a database failure is held back until `HealthMonitor` has checked. If the database answers,
 * the failure was a single one and is logged in one line. Everything else passes through at once. `stop` ends
 * the reminders.
 *
 * While the schema is too new, each service fails in each of its rounds. `SchemaMonitor` logs that once, and
 * these warnings become debug lines.
 */
import { inOneLine, type Log, type LogFields } from '../../lib/log.ts';
import { isCancelled, isUnavailable } from '../../store/connection/sql.ts';
import { SchemaTooNewError } from '../../store/schema-too-new.ts';
import type { HealthMonitor } from './health-monitor.ts';

const remindMs = 30_000;

interface Outage {
  beganAt: number;
  failures: number;
  reminder: NodeJS.Timeout;
}

export class OutageLog implements Log {
  readonly debug: Log['debug'];
  readonly info: Log['info'];
  readonly error: Log['error'];
  readonly #log: Log;
  readonly #health: HealthMonitor;
  #outage: Outage | undefined;
  #hasBeenUp = false;
  /** When the first of the warnings held back arrived, by `performance.now()`, and how many there are. */
  #heldSince: number | undefined;
  #held = 0;

  constructor(log: Log, health: HealthMonitor) {
    this.#log = log;
    this.#health = health;
    this.debug = log.debug;
    this.info = log.info;
    this.error = log.error;
    health.onChange((up) => (up ? this.#end() : this.#begin()));
  }

  /** Bound, as all functions of a log are, because callers may pass them on. */
  readonly warn: Log['warn'] = (message, fields = {}) => {
    if (fields.error instanceof SchemaTooNewError) this.#log.debug(message, fields);
    else if (!isOfDatabase(fields)) this.#log.warn(message, fields);
    else if (this.#outage) {
      this.#outage.failures++;
      this.#log.debug(message, fields);
    } else void this.#holdBack(message, fields);
  };

  stop(): void {
    clearInterval(this.#outage?.reminder);
    this.#outage = undefined;
    this.#hasBeenUp = false;
  }

  async #holdBack(message: string, fields: LogFields): Promise<void> {
    this.#heldSince ??= performance.now();
    this.#held++;
    const isUp = await this.#health.runOnce();
    this.#heldSince = undefined;
    this.#held = 0;
    if (!isUp) return;
    const { error, ...rest } = fields;
    this.#log.warn(message, error === undefined ? rest : { ...rest, reason: inOneLine(error) });
  }

  #begin(): void {
    if (this.#outage || !this.#hasBeenUp) return;
    const { reason } = this.#health;
    const beganAt = this.#heldSince ?? performance.now();
    const reminder = setInterval(() => {
      const { failures } = this.#outage as Outage;
      this.#log.warn('the database still does not answer', { outageMs: since(beganAt), failures });
    }, remindMs).unref();
    this.#outage = { beganAt, failures: this.#held, reminder };
    this.#log.warn('the database does not answer', reason === undefined ? {} : { reason });
  }

  #end(): void {
    this.#hasBeenUp = true;
    if (!this.#outage) return;
    const { beganAt, failures, reminder } = this.#outage;
    clearInterval(reminder);
    this.#outage = undefined;
    this.#log.info('the database answers again', { outageMs: since(beganAt), failures });
  }
}

const since = (beganAt: number): number => Math.round(performance.now() - beganAt);

const isOfDatabase = ({ error, reason }: LogFields): boolean =>
  (error !== undefined && (isUnavailable(error) || isCancelled(error))) ||
  (typeof reason === 'string' && reason.startsWith('unavailable: the database'));
