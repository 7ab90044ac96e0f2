/**
 * The floor under draining: the store's own statements over one bare connection of the driver, a transaction a round, in
 * which the jobs of the round before end and as many are leased. There is no network but the database's, nobody is
 * judged, waited for or told, and nothing is decoded but rows. It is what a server that costs nothing could do over one
 * connection.
 */
import { randomUUID } from 'node:crypto';
import { Client, types } from 'pg';
import { decideRelease } from '../../../src/domain/leases/lease-policy.ts';
import { limits } from '../../../src/domain/limits.ts';
import { LeaseEndings } from '../../../src/engine/dispatch/lease-endings.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { sessionOptions } from '../../../src/store/connection/session-settings.ts';
import type { Sql } from '../../../src/store/connection/sql.ts';
import { lockLeasedJobs } from '../../../src/store/sql/jobs/lock.ts';
import { lockCapacityWith } from '../../../src/store/sql/leases/capacity.ts';
import { grantLeases } from '../../../src/store/sql/leases/grant.ts';
import { lockCandidates } from '../../../src/store/sql/queue/candidates.ts';
import { firstWindow, noMarks } from '../../../src/store/sql/queue/heads.ts';
import { drive, type Round } from './drive.ts';

const jobsPerRound = 250;
const capacityTotal = 1_000_000;
const leaseTtlS = 60;
const maxClaims = 10;
const worker = 'worker-0';
const nothing = { result: null, error: null, errorDetail: null, metrics: null };
const timestamptz = 1184;

/** Statements by name, each parsed and planned once. Times stay the text that they are. */
class BareSql implements Sql {
  readonly #client: Client;
  readonly #names = new Map<string, string>();

  constructor(client: Client) {
    this.#client = client;
  }

  async query<Row>(text: string, params: readonly unknown[]): Promise<Row[]> {
    const name = this.#names.get(text) ?? `raw_${this.#names.size}`;
    this.#names.set(text, name);
    const { rows } = await this.#client.query({ name, text, values: [...params] });
    return rows as Row[];
  }
}

export class RawDrain {
  readonly #client: Client;
  readonly #sql: Sql;
  readonly #stream: string;
  #leaseIds: string[] = [];

  private constructor(client: Client, stream: string) {
    this.#client = client;
    this.#sql = new BareSql(client);
    this.#stream = stream;
  }

  static async open(url: string, stream: string): Promise<RawDrain> {
    const client = new Client({
      connectionString: url,
      options: sessionOptions(),
      types: {
        getTypeParser: ((oid: number, format?: 'text') =>
          oid === timestamptz ? (text: string) => text : types.getTypeParser(oid, format)) as never,
      },
    });
    await client.connect();
    return new RawDrain(client, stream);
  }

  /** Carries out so many queued jobs, all of them done in the end. */
  drain(jobs: number): Promise<Round> {
    let left = jobs;
    return drive(1, () => {
      if (left <= 0 && this.#leaseIds.length === 0) return undefined;
      const wanted = Math.min(left, jobsPerRound);
      left -= wanted;
      return this.#round(wanted);
    });
  }

  close(): Promise<void> {
    return this.#client.end();
  }

  async #round(wanted: number): Promise<number> {
    const before = this.#leaseIds;
    await this.#client.query('begin');
    const units = await this.#end(before);
    await lockCapacityWith(this.#sql, capacityTotal, units);
    this.#leaseIds = wanted > 0 ? await this.#lease(wanted) : [];
    await this.#client.query('commit');
    if (this.#leaseIds.length !== wanted)
      throw new Error(`${wanted} jobs were to be leased, and there were not as many`);
    return before.length;
  }

  async #end(leaseIds: readonly string[]): Promise<number> {
    if (leaseIds.length === 0) return 0;
    const locked = await lockLeasedJobs(this.#sql, leaseIds, { wait: false });
    const ends = new LeaseEndings({ transport: { keepsMessages: false }, maxClaims });
    const cause = { kind: 'RELEASED', status: 'SUCCEEDED' } as const;
    for (const job of locked.values())
      ends.add(job, decideRelease(job, 'SUCCEEDED', false), cause, nothing, worker);
    await ends.write(this.#sql, { later: true });
    if (ends.count !== leaseIds.length) throw new Error('a lease was lost');
    return ends.units;
  }

  async #lease(wanted: number): Promise<string[]> {
    const filter = {
      streams: [this.#stream],
      addonId: null,
      jobTypes: null,
      maxCostUnits: null,
      available: [],
      refused: [],
    };
    const { candidates } = await lockCandidates(this.#sql, filter, {
      count: wanted,
      unique: true,
      window: firstWindow(noMarks),
    });
    const leases = candidates.map(({ jobId }) => ({
      jobId,
      leaseId: newId(),
      token: randomUUID(),
      workerId: worker,
      holder: null,
      requestId: null,
      state: 'RUNNING' as const,
      ttlS: leaseTtlS,
      deliveryS: limits.deliveryS,
    }));
    await grantLeases(this.#sql, leases, { from: 'QUEUED', graceS: 0, keepsMessages: false });
    return leases.map(({ leaseId }) => leaseId);
  }
}
