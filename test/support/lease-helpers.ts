/** How tests below the faces take, keep and give back leases, and hold up those who want the same rows. */
import { expect } from 'chai';
import pg from 'pg';
import type { Denial, Grant, Heartbeat, LeaseOutcome, Release } from '../../src/domain/leases/lease.ts';
import { requestClassOf } from '../../src/domain/queue/claim-filter.ts';
import type { AcquireLease, RequestLease } from '../../src/domain/requests/scheduler.ts';
import type { EngineSettings } from '../../src/engine/context/engine-context.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open.ts';
import type { TestDatabase, TestEngine, TestStore } from './engines.ts';
import { anyJob, caller, engineOn, engineSettings, letTimePass, type TestedEngine } from './jobs.ts';
import { eventually } from './server.ts';

export function expectGranted(outcome: LeaseOutcome): Grant {
  if (outcome.kind !== 'granted') return expect.fail(`it was denied: ${outcome.reason}`);
  return outcome;
}

export function expectDenied(outcome: LeaseOutcome): Denial {
  if (outcome.kind !== 'denied') return expect.fail(`lease ${outcome.lease.leaseId} was granted`);
  return outcome;
}

export const acquire = (
  engine: TestedEngine,
  workerId: string,
  more: Partial<AcquireLease> = {},
): Promise<LeaseOutcome> => engine.leases.acquire({ worker_id: workerId, ...more }, caller);

export const acquired = async (
  engine: TestedEngine,
  workerId = 'w',
  more: Partial<AcquireLease> = {},
): Promise<Grant> => expectGranted(await acquire(engine, workerId, more));

/** Up to so many jobs, as a stream takes them that has credit for no more. */
export const fetching = (engine: TestedEngine, count: number, streams: string[] | null = null) => {
  const filter = { ...anyJob, streams };
  return engine.leases.fetch({
    workerId: 'w',
    holder: null,
    filter,
    ttlS: null,
    requestClass: requestClassOf(filter, null),
    count: () => count,
    signal: undefined,
    idle: new AbortController().signal,
  });
};

/** What a replay of a grant has in common with its first answer: all but what is left of the lease, and the wait before it. */
export const sameEachTime = (outcome: LeaseOutcome | undefined): Partial<Grant> | Denial | undefined => {
  if (outcome?.kind !== 'granted') return outcome;
  const { heartbeatWithinMs: _left, waitMs: _waited, ...rest } = outcome;
  return rest;
};

/** The next job in line, claimed and leased in two steps. */
export async function claimedAndLeased(
  engine: TestedEngine,
  workerId = 'w',
  more: Partial<RequestLease> = {},
): Promise<Grant> {
  const [job] = await engine.jobs.claim({ worker_id: workerId }, caller);
  const command = { job_id: job?.jobId ?? 'nothing to claim', ...more };
  return expectGranted(await engine.leases.request(command, caller));
}

/** A sign of life as the holder of the lease gives it. */
export const beatFor = (
  { lease }: { lease: Pick<Grant['lease'], 'leaseId' | 'workerId'> },
  more: Partial<Heartbeat> = {},
): Heartbeat => ({
  leaseId: lease.leaseId,
  workerId: lease.workerId,
  holder: null,
  token: null,
  jobId: null,
  progress: null,
  message: null,
  ...more,
});

/** So much time passes, and then the holder is heard of, in time. */
export async function heardAfter(
  database: Database,
  { leases }: TestedEngine,
  grant: Grant,
  ms: number,
  more: Partial<Heartbeat> = {},
): Promise<void> {
  await letTimePass(database, ms);
  const [verdict] = await leases.heartbeatMany([beatFor(grant, more)]);
  expect(verdict?.kind).to.equal('extended');
}

/** What the holder of a lease hands in with it. */
export const releaseFor = ({ lease, token }: Grant, more: Partial<Release> = {}): Release => ({
  leaseId: lease.leaseId,
  workerId: lease.workerId,
  holder: null,
  token,
  jobId: null,
  status: 'SUCCEEDED',
  resultData: null,
  error: null,
  errorDetail: null,
  retryable: false,
  metrics: null,
  message: null,
  bytes: 0,
  ...more,
});

/** The code a promise fails with, or 'ok'. */
export const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'ok',
    (error: { code?: unknown }) => {
      if (typeof error.code !== 'string') throw error;
      return error.code;
    },
  );

/** Every row with the number of the transaction that wrote it, to prove that nothing was written. */
export const everything = async (database: Database): Promise<unknown> =>
  Promise.all(
    ['live_jobs', 'leases', 'job_outcomes', 'capacity', 'job_events'].map((table) =>
      database.query(`select xmin::text, * from ${table} order by 2, 3`, []),
    ),
  );

/** Leaves nothing of an earlier test: many share a database, because opening one takes longer than most of them. */
export async function wipe(database: Database): Promise<void> {
  for (const table of ['live_jobs', 'jobs', 'job_outcomes', 'leases', 'job_events', 'outages']) {
    await database.query(`delete from ${table}`, []);
  }
  await database.query('update capacity set used = 0, total = null, busy_rating = 0', []);
  await database.query('update pulse set alive_at = clock_timestamp()', []);
}

/** One database for the tests of a suite, with nothing of the test before in it, and an engine for each. */
export function freshForEach(kind: TestEngine): Readonly<{ store: TestDatabase; engine: TestedEngine }> {
  const stage = {} as { store: TestDatabase; engine: TestedEngine };
  before(async () => {
    stage.store = await kind.open();
  });
  after(() => stage.store.close());
  beforeEach(async () => {
    await wipe(stage.store.database);
    stage.engine = engineOn(stage.store.database);
  });
  afterEach(() => stage.engine.stop());
  return stage;
}

/** Lets time pass in which no server is alive. */
export async function noServerFor(database: Database, ms: number): Promise<void> {
  await letTimePass(database, ms);
  await database.query("update pulse set alive_at = clock_timestamp() - $1::float8 * interval '1 ms'", [ms]);
}

/** Further servers on the same database, each with connections of its own. */
export async function moreServers(
  store: TestStore,
  count: number,
  settings: EngineSettings = engineSettings,
): Promise<{ engines: TestedEngine[]; stop(): Promise<void> }> {
  const engines: TestedEngine[] = [];
  for (let i = 0; i < count; i++) engines.push(engineOn(await openDatabase(store.options), settings));
  return {
    engines,
    stop: async () => {
      await Promise.all(engines.map((engine) => engine.stop()));
      await Promise.all(engines.map(({ services }) => services.database.close()));
    },
  };
}

/** Holds what it locks on a connection of its own until it is let go. */
export class Holder {
  readonly #client: pg.Client;
  readonly #ended: Promise<void>;

  private constructor(client: pg.Client) {
    this.#client = client;
    this.#ended = new Promise((resolve) => void client.once('end', () => resolve()));
  }

  /** Runs one statement in a transaction that stays open. */
  static async hold(store: TestStore, text: string, params: unknown[] = []): Promise<Holder> {
    const client = new pg.Client({ connectionString: store.options.url });
    await client.connect();
    await client.query('begin');
    await client.query(text, params);
    return new Holder(client);
  }

  static holdJobs(store: TestStore, jobIds: readonly string[]): Promise<Holder> {
    const lock = 'select from live_jobs where job_id = any ($1) order by job_id for update';
    return Holder.hold(store, lock, [jobIds]);
  }

  async query<Row extends object>(text: string, params: unknown[] = []): Promise<Row[]> {
    return (await this.#client.query<Row>(text, params)).rows;
  }

  /** Waits until so many sessions of this database wait for a lock. */
  async untilWaiting(count: number): Promise<void> {
    await eventually(`${count} sessions wait for a lock`, async () => {
      // A transaction looks at these figures once, and then remembers them.
      const [row] = await this.query<{ n: number }>(
        `select count(*)::int as n, pg_stat_clear_snapshot() from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`,
      );
      return (row?.n ?? 0) >= count ? true : undefined;
    });
  }

  async letGo(): Promise<void> {
    await this.#client.query('commit');
    await this.close();
  }

  async close(): Promise<void> {
    await this.#client.end();
    await this.#ended;
  }
}
