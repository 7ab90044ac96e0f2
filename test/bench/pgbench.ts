import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { temporaryFolder } from '../support/cleanup.ts';
import { findPostgres } from '../support/postgres.ts';
import type { Store } from './stage.ts';

const run = promisify(execFile);
const clientsMax = 64;

/** One row a client, so that what is measured is the commit and not a queue for a row. */
const makeTable = `create table counters (client_id int primary key, value bigint not null);
insert into counters select n, 0 from generate_series(0, ${clientsMax - 1}) as n`;
const script = 'update counters set value = value + 1 where client_id = :client_id;\n';

/** PostgreSQL's own benchmark, as it comes with the server; it is loaded with the smallest change that is worth a commit. */
export class PgBench {
  readonly #program: string;
  readonly #url: string;
  readonly #script: string;

  private constructor(program: string, url: string, scriptFile: string) {
    this.#program = program;
    this.#url = url;
    this.#script = scriptFile;
  }

  /** Undefined where the PostgreSQL that is used here has none beside it. */
  static async open(store: Store): Promise<PgBench | undefined> {
    const program = join(findPostgres() ?? '', 'pgbench');
    if (!existsSync(program)) return undefined;
    const file = join(await temporaryFolder('pgbench'), 'script.sql');
    await writeFile(file, script);
    await store.query(makeTable);
    return new PgBench(program, store.place.url as string, file);
  }

  /** Commits a second. It counts in whole seconds, of which it takes one at least. */
  async run(clients: number, durationMs: number): Promise<number> {
    const seconds = Math.max(1, Math.round(durationMs / 1_000));
    const args = [
      '-n',
      '-f',
      this.#script,
      '-c',
      `${clients}`,
      '-T',
      `${seconds}`,
      '-M',
      'prepared',
      this.#url,
    ];
    const { stdout } = await run(this.#program, args);
    const rate = /^tps = ([\d.]+)/m.exec(stdout)?.[1];
    if (rate === undefined) throw new Error(`pgbench did not say how fast it was: ${stdout}`);
    return Number(rate);
  }
}
