/**
 * The guarantee: any number of servers on one PostgreSQL behave as one.
 * - No job goes to two workers.
 * - An expired claim is requeued once and on time, by any server.
 * - The other servers take over everything that a dead server leaves behind.
 */
import { expect } from 'chai';
import { type JobEvent, OnDuplicate, Priority } from '../../gen/leasehold/v1/jobs_pb.js';
import { eventNumber } from '../../src/domain/jobs/state-machine.ts';
import { findPostgres } from '../support/postgres.ts';
import { type ServerProcess, startServer, until } from '../support/process.ts';
import { type Client, connect, createPostgresStore, type PostgresStore } from '../support/server-clients.ts';

const serverCount = 3;
const claimersEach = 8;
const claimedType = eventNumber('JOB_CLAIMED');
const expiredType = eventNumber('CLAIM_EXPIRED');

interface Together {
  store: PostgresStore;
  servers: ServerProcess[];
  clients: Client[];
}

/**
 * Several servers on one database, each with a client: one set for the tests of a block, emptied between
 * them.
 */
function together(env: Record<string, string> = {}): Together {
  const all = { servers: [], clients: [] } as unknown as Together;
  const resources = new AsyncDisposableStack();
  before(async () => {
    all.store = resources.use(await createPostgresStore());
    const starts = Array.from({ length: serverCount }, () => startServer({ ...all.store.env, ...env }));
    for (const server of await Promise.all(starts)) {
      all.servers.push(resources.use(server));
      all.clients.push(resources.use(connect(server)));
    }
  });
  beforeEach(() => all.store.query('truncate jobs, live_jobs, job_outcomes, job_events'));
  after(() => resources.disposeAsync());
  return all;
}

const at = <T>(list: readonly T[], index: number): T => list[index % list.length] as T;

async function submit({ jobs }: Client, count: number, priority = Priority.NORMAL): Promise<void> {
  const job = { addonId: 'a', jobType: 't', costUnits: 1, priority };
  const { outcomes } = await jobs.submitJobs({ jobs: Array.from({ length: count }, () => job) });
  expect(outcomes.filter(({ outcome }) => outcome.case === 'submitted')).to.have.length(count);
}

interface Claim {
  jobId: string;
  priority: Priority;
}

/** Claims until no job is left, and returns the claims in their order. */
async function drain({ jobs }: Client, workerId: string): Promise<Claim[]> {
  const claims: Claim[] = [];
  for (;;) {
    const claimed = (await jobs.claimJobs({ workerId })).jobs;
    if (claimed.length === 0) return claims;
    claims.push(...claimed.map(({ jobId, priority }) => ({ jobId, priority })));
  }
}

function drainThroughAll({ clients }: Together): Promise<Claim[][]> {
  const workers = Array.from({ length: serverCount * claimersEach }, (_, i) => `worker-${i}`);
  return Promise.all(workers.map((worker, i) => drain(at(clients, i), worker)));
}

const isSorted = (numbers: readonly number[]) =>
  numbers.every((number, i) => i === 0 || number <= (numbers[i - 1] as number));

/** The delay with which claims were requeued, and how often each was. */
async function expiries(store: PostgresStore) {
  const row = await store.query(`
    with expiry as (
      select job_id, extract(epoch from at - (data ->> 'claim_expires_at')::timestamptz) * 1000 as late_ms
      from job_events where type = ${expiredType}
    )
    select count(*), min(late_ms)::float8, max(late_ms)::float8,
      percentile_cont(0.99) within group (order by late_ms)::float8
    from expiry`);
  const [count = 0, minMs = 0, maxMs = 0, p99Ms = 0] = row.split('|').map(Number);
  return { count, minMs, maxMs, p99Ms };
}

/** Waits until no job is claimed; by then each claim must have ended once and on time. */
async function expectOnTime(store: PostgresStore, what: string): Promise<void> {
  const claimed = `select count(*) from live_jobs where claimed_by is not null`;
  await until('all claims to be given back', async () => (await store.query(claimed)) === '0');
  const found = await expiries(store);
  const told = `p99 ${found.p99Ms.toFixed(0)} ms, max ${found.maxMs.toFixed(0)} ms late`;
  process.stdout.write(`      ${found.count} claims ${what}: ${told}\n`);
  const uneven = await store.query(`
    select job_id from job_events group by job_id
    having count(*) filter (where type = ${expiredType}) <> count(*) filter (where type = ${claimedType})`);
  expect(uneven, 'jobs that were given back more or less often than claimed').to.equal('');
  expect(found.minMs, 'none before its time').to.be.at.least(0);
  expect(found.p99Ms, 'ms late at p99').to.be.below(250);
}

if (findPostgres()) {
  describe('several servers on one PostgreSQL', () => {
    const all = together();

    it('gives every job to one worker, in the order of priority, until none is left', async () => {
      const priorities = [Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.URGENT];
      for (const [i, priority] of priorities.entries()) await submit(at(all.clients, i), 750, priority);
      const claims = await drainThroughAll(all);
      const ids = claims.flat().map(({ jobId }) => jobId);
      expect([ids.length, new Set(ids).size], 'claims, and jobs claimed').to.deep.equal([3_000, 3_000]);
      for (const each of claims) {
        expect(isSorted(each.map(({ priority }) => priority)), 'the order of a worker').to.equal(true);
      }
      expect(await all.store.query('select count(*) from live_jobs where state = 0')).to.equal('0');
    });

    it('notifies a watcher on another server of a change', async () => {
      const [first, second] = all.clients as [Client, Client];
      const { job } = await first.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
      const jobId = job?.jobId ?? '';
      const watching = second.jobs.watchJob({ jobId })[Symbol.asyncIterator]();
      await watching.next();
      await first.jobs.cancelJob({ jobId });
      const { value } = await watching.next();
      expect(value?.events.map((event: JobEvent) => event.type)).to.deep.equal(['JOB_CANCELED']);
      expect((await watching.next()).done).to.equal(true);
    });

    it('creates one job for duplicates sent to all servers, and refuses the others with its id', async () => {
      const body = { addon_id: 'a', job_type: 't', cost_units: 1, client_request_id: 'the one' };
      const answers = await Promise.all(
        Array.from({ length: 12 * serverCount }, (_, i) =>
          at(all.clients, i).rest('POST', '/api/scheduler/jobs/submit', body),
        ),
      );
      const first = answers.filter(({ status }) => status === 201);
      const others = answers.filter(
        ({ status, body }) => status === 409 && body.code === 'duplicate_request',
      );
      expect([first.length, others.length]).to.deep.equal([1, answers.length - 1]);
      const ids = new Set(others.map(({ body }) => body.job_id));
      expect([...ids]).to.deep.equal([first[0]?.body.job.job_id]);
      expect(await all.store.query('select count(*) from jobs')).to.equal('1');
    });

    it('creates one job for duplicates sent to all servers, and returns it to every caller', async () => {
      const onDuplicate = OnDuplicate.RETURN_EXISTING;
      const one = { addonId: 'a', jobType: 't', costUnits: 1, clientRequestId: 'the one', onDuplicate };
      const answers = await Promise.all(
        Array.from({ length: 12 * serverCount }, async (_, i) => {
          using client = connect(at(all.servers, i));
          return await client.jobs.submitJob(one);
        }),
      );
      expect(answers.filter(({ existing }) => !existing)).to.have.length(1);
      expect(new Set(answers.map(({ job }) => job?.jobId)).size, 'ids').to.equal(1);
      expect(await all.store.query('select count(*) from live_jobs')).to.equal('1');
    });
  });

  describe('several servers on one PostgreSQL with a claim TTL of 1 s', () => {
    const all = together({ LEASEHOLD_CLAIM_TTL_S: '1' });

    it('requeues 1,000 claims that expire together once and on time', async () => {
      await submit(at(all.clients, 0), 1_000);
      const { jobs } = await at(all.clients, 1).jobs.claimJobs({ workerId: 'w', limit: 1_000 });
      expect(jobs).to.have.length(1_000);
      await expectOnTime(all.store, 'that end together');
    });

    it('requeues 1,000 claims that expire one after the other once and on time', async () => {
      await submit(at(all.clients, 0), 1_000);
      for (let i = 0; i < 100; i++) {
        await at(all.clients, i).jobs.claimJobs({ workerId: `w-${i}`, limit: 10 });
      }
      await expectOnTime(all.store, 'that end one after the other');
    });

    it('takes over the claims of a server that was killed', async () => {
      await submit(at(all.clients, 0), 200);
      const { jobs } = await at(all.clients, 0).jobs.claimJobs({ workerId: 'w', limit: 200 });
      await all.servers[0]?.kill();
      expect(jobs).to.have.length(200);
      await expectOnTime(all.store, 'of a server that was killed');
      const again = await at(all.clients, 1).jobs.claimJobs({ workerId: 'another', limit: 1_000 });
      expect(again.jobs).to.have.length(200);
    });
  });
}
