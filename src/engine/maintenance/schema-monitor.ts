/**
 * Refuses this server's writes while the schema needs a newer server version.
 *
 * Guarantees: a server that runs while a newer one migrates reads the requirement within `lookMs`. From then
 * on it refuses writes with `unavailable: schema too new …`. Reads go on. The migrating server waits longer
 * than `lookMs` between announcing and migrating; see `store/schema-compatibility.ts`.
 *
 * Lifecycle: `start` checks every `lookMs`; `stop` waits for the running check.
 *
 * Failure modes: a check that fails changes nothing, because without its database a server writes nothing
 * either.
 */

import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import { isUnavailable } from '../../store/connection/sql.ts';
import type { Database } from '../../store/database.ts';
import { refusal, unmetRequirement } from '../../store/schema-compatibility.ts';

const lookMs = 1_000;

export class SchemaMonitor implements Service {
  readonly #database: Database;
  readonly #log: Log;
  readonly #rounds: PeriodicTask;
  #isRefusing = false;

  constructor(database: Database, log: Log) {
    this.#database = database;
    this.#log = log;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return lookMs;
      },
      onFailed: (error) => {
        if (!isUnavailable(error)) log.warn('failed to read schema_compatibility', { error });
      },
      failedMs: lookMs,
    });
  }

  start(): void {
    // Nothing else can migrate the embedded database while this process has it.
    if (this.#database.engine === 'postgresql') this.#rounds.start(lookMs);
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
  }

  async runOnce(): Promise<void> {
    const unmet = await unmetRequirement(this.#database);
    if ((unmet !== undefined) === this.#isRefusing) return;
    await this.#database.refuseWrites(unmet && refusal(unmet));
    this.#isRefusing = unmet !== undefined;
    if (unmet) this.#log.error('schema too new: writes are refused', { ...unmet });
    else this.#log.info('the schema allows writes again');
  }
}
