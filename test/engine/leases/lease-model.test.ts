/**
 * Compares the engine with a model: random commands run against a real database, and after each of them every
 * row equals the model's.
 *
 * The commands are the same in every run of the suite. LEASEHOLD_TEST_MODEL_S sets for how many seconds it
 * runs on each engine. LEASEHOLD_TEST_MODEL_SEED sets another first seed; a failure names its own seed.
 */
import { expect } from 'chai';
import fc from 'fast-check';
import { backoffMs } from '../../../src/domain/jobs/backoff.ts';
import { type FinalStatus, finalStatuses, priorities } from '../../../src/domain/jobs/job.ts';
import {
  type EventType,
  eventNamed,
  eventTypes,
  type State,
  stateNamed,
  states,
  transitions,
} from '../../../src/domain/jobs/state-machine.ts';
import type { LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { allEvents, endedLeases } from '../../support/history.ts';
import type { TestedEngine as Engine } from '../../support/jobs.ts';
import { caller, engineOn, engineSettings, letTimePass, submitted } from '../../support/jobs.ts';
import { beatFor, codeOf, releaseFor, wipe } from '../../support/lease-helpers.ts';
import {
  type Asked,
  claimMs,
  type Decision,
  type JobModel,
  type LeaseModel,
  Machine,
  maxClaims,
  ttlMs,
} from './lease-model.ts';

const seconds = Number(process.env.LEASEHOLD_TEST_MODEL_S || 5);
const firstSeed = Number(process.env.LEASEHOLD_TEST_MODEL_SEED || 20_250_101);
const runsPerSeed = 2;
const commandsMax = 120;

const settings = { ...engineSettings, leaseTtlS: ttlMs / 1000, claimTtlS: claimMs / 1000, maxClaims };

type Command = fc.AsyncCommand<Machine, Engine>;

/** One command: its name, its precondition, and its effect on the model and the engine. */
const command = (
  name: string,
  when: (machine: Machine) => boolean,
  run: (machine: Machine, engine: Engine) => Promise<void>,
): Command => ({
  toString: () => name,
  check: when,
  run: async (machine, engine) => {
    await run(machine, engine);
    await compare(machine, engine);
  },
});

const always = () => true;
const hasJobs = ({ jobs }: Machine) => jobs.length > 0;
const hasLeases = ({ leases }: Machine) => leases.length > 0;
/** Mostly a job for which the command has an effect, and sometimes any other one. */
const jobAt = ({ jobs }: Machine, i: number, suits: (job: JobModel) => boolean) => {
  const suitable = i % 5 === 0 ? [] : jobs.filter(suits);
  return (suitable.length > 0 ? suitable[i % suitable.length] : jobs[i % jobs.length]) as JobModel;
};
/** Prefers the six latest leases. */
const leaseAt = ({ leases }: Machine, i: number) =>
  leases[leases.length - 1 - (i % Math.min(leases.length, 6))] as LeaseModel;

const worker = fc.constantFrom('a', 'b', 'c');
const maybeWorker = fc.option(worker, { freq: 3 });
const requestId = fc.option(fc.constantFrom('r1', 'r2'), { freq: 2 });
const index = fc.nat(1_000);

const submit = fc
  .record({
    cost: fc.oneof({ weight: 4, arbitrary: fc.integer({ min: 1, max: 6 }) }, fc.integer({ min: 1, max: 24 })),
    priority: fc.nat(3),
    stream: fc.constantFrom(null, null, 's', 't'),
    unique: fc.boolean(),
    maxAttempts: fc.integer({ min: 1, max: 3 }),
    maxRuntimeS: fc.constantFrom(null, null, 45, 150),
    backoffS: fc.constantFrom(0, 0, 100),
  })
  .map(({ maxRuntimeS, ...job }) =>
    command(
      `submit(${JSON.stringify(job)})`,
      (machine) => machine.jobs.length < 30 && machine.line([null, 's', 't']).length < 9,
      async (machine, engine) => {
        const [made] = await submitted(engine, {
          cost_units: job.cost,
          priority: priorities[job.priority],
          stream: job.stream,
          unique: job.unique,
          max_attempts: job.maxAttempts,
          max_runtime_s: maxRuntimeS,
          retry_backoff_s: job.backoffS,
        });
        machine.submit({
          ...job,
          jobId: made?.jobId ?? '',
          maxRuntimeMs: maxRuntimeS === null ? null : maxRuntimeS * 1000,
        });
      },
    ),
  );

const claim = worker.map((who) =>
  command(`claim(${who})`, always, async (machine, engine) => {
    const jobs = await engine.jobs.claim({ worker_id: who }, caller);
    const job = machine.claim(who);
    expect(jobs.map(({ jobId }) => jobId)).to.deep.equal(job ? [job.jobId] : []);
  }),
);

const updateStatus = fc
  .tuple(
    index,
    fc.constantFrom<Exclude<State, 'LEASED'>>('PREPARING', 'LEASE_PENDING', 'QUEUED', 'RUNNING', 'DONE'),
    maybeWorker,
  )
  .map(([i, state, who]) =>
    command(`status(${i}, ${state}, ${who})`, hasJobs, async (machine, engine) => {
      const job = jobAt(machine, i, machine.isClaimed);
      const answer = codeOf(engine.jobs.updateStatus(job.jobId, { state, worker_id: who }, caller));
      expect(await answer).to.equal(machine.updateStatus(job, state, who));
    }),
  );

/** Compares the answer with the expected one, and adds the lease to the model. */
function settle(
  machine: Machine,
  wanted: Decision,
  outcome: LeaseOutcome,
  state: State,
  asked: Asked,
  ttl: number,
) {
  if (wanted.kind === 'refuse') return expect.fail(`it should have been refused as ${wanted.code}`);
  if (outcome.kind === 'denied' || wanted.kind === 'deny') {
    const said = outcome.kind === 'denied' ? outcome.reason : `granted ${outcome.job.jobId}`;
    expect(said).to.equal(wanted.kind === 'deny' ? wanted.reason : `granted ${wanted.job.jobId}`);
    if (outcome.kind === 'denied') expect(outcome.retryAfterMs).to.be.within(100, 30_000);
    return;
  }
  const { lease, token, job } = outcome;
  expect(job.jobId).to.equal(wanted.job.jobId);
  const { replay } = wanted;
  if (replay) {
    expect([lease.leaseId, token, lease.fence]).to.deep.equal([
      replay.leaseId,
      replay.token,
      `${replay.fence}`,
    ]);
    return;
  }
  const fence = BigInt(lease.fence);
  expect(fence > machine.fence, 'a fence above all before it').to.equal(true);
  const { leaseId, workerId } = lease;
  machine.granted(
    wanted.job,
    { leaseId, token, worker: workerId, requestId: asked.requestId, fence, ttlMs: ttl },
    state,
  );
  expect(lease.attempt).to.equal(wanted.job.attempts);
}

const request = fc
  .tuple(index, maybeWorker, requestId, fc.constantFrom(null, 60, 200))
  .map(([i, who, request_id, ttl_sec]) =>
    command(`request(${i}, ${who}, ${request_id}, ${ttl_sec})`, hasJobs, async (machine, engine) => {
      const job = jobAt(machine, i, (one) => machine.isClaimed(one) || machine.isLeased(one));
      const asked = { worker: who, requestId: request_id };
      const wanted = machine.request(job, asked);
      const answer = engine.leases.request(
        { job_id: job.jobId, worker_id: who, request_id, ttl_sec },
        caller,
      );
      if (wanted.kind === 'refuse') expect(await codeOf(answer)).to.equal(wanted.code);
      else settle(machine, wanted, await answer, 'RUNNING', asked, ttl_sec === null ? ttlMs : ttl_sec * 1000);
    }),
  );

const acquire = fc
  .tuple(
    worker,
    fc.option(fc.constantFrom('a1', 'a2'), { freq: 2 }),
    fc.option(fc.integer({ min: 1, max: 20 }), { freq: 2 }),
    fc.constantFrom<string[]>([], [], ['s'], ['t', 's'], ['s', 't'], ['u']),
  )
  .map(([who, request_id, max_units, streams]) =>
    command(`acquire(${who}, ${request_id}, ${max_units}, [${streams}])`, always, async (machine, engine) => {
      const asked = { worker: who, requestId: request_id };
      const wanted = machine.acquire(asked, max_units, streams.length === 0 ? [null] : streams);
      const outcome = await engine.leases.acquire({ worker_id: who, request_id, max_units, streams }, caller);
      settle(machine, wanted, outcome, streams.length === 0 ? 'LEASED' : 'RUNNING', asked, ttlMs);
    }),
  );

const retryDeadLetters = fc
  .tuple(fc.constantFrom(null, 's', 't'), fc.integer({ min: 1, max: 3 }))
  .map(([stream, limit]) =>
    command(`retryDeadLetters(${stream}, ${limit})`, hasJobs, async (machine, engine) => {
      const dead = machine.jobs
        .filter((job) => job.dead && (stream === null || job.stream === stream))
        .slice(0, limit);
      for (const job of dead) machine.retry(job);
      const retried = await engine.jobs.retryDeadLetters({ stream, limit }, caller);
      expect(retried).to.deep.equal(dead.map(({ jobId }) => jobId));
    }),
  );

/** The worker and the token of a call: mostly the right ones. */
const proof = fc.record({
  stranger: fc.oneof({ weight: 4, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: worker }),
  token: fc.constantFrom('none', 'right', 'right', 'wrong'),
});
type Proof = { stranger: string | null; token: string };
const prove = (lease: LeaseModel, { stranger, token }: Proof) => ({
  who: stranger ?? lease.worker,
  token: token === 'none' ? null : token === 'right' ? lease.token : lease.leaseId,
});

const beat = fc.tuple(index, proof).map(([i, how]) =>
  command(`beat(${i}, ${JSON.stringify(how)})`, hasLeases, async (machine, engine) => {
    const lease = leaseAt(machine, i);
    const { who, token } = prove(lease, how);
    const holder = { lease: { leaseId: lease.leaseId, workerId: who } };
    const [verdict] = await engine.leases.heartbeatMany([beatFor(holder, { token })]);
    const wanted = machine.beat(lease, who, token);
    expect(verdict?.kind === 'lost' ? verdict.code : verdict?.kind).to.equal(wanted);
    if (verdict?.kind !== 'extended') return;
    expect(verdict.cancelRequested).to.equal(lease.job.cancelRequested);
    expect(verdict.ttlRemainingMs).to.be.within(
      lease.until - machine.now - 20_000,
      lease.until - machine.now,
    );
  }),
);

const release = fc
  .tuple(index, proof, fc.constantFrom<FinalStatus>(...finalStatuses, 'FAILED', 'FAILED'), fc.boolean())
  .map(([i, how, status, retryable]) =>
    command(
      `release(${i}, ${JSON.stringify(how)}, ${status}, ${retryable})`,
      hasLeases,
      async (machine, engine) => {
        const lease = leaseAt(machine, i);
        const { who, token } = prove(lease, how);
        const { leaseId } = lease;
        const command = releaseFor(
          { lease: { leaseId, workerId: who } } as Parameters<typeof releaseFor>[0],
          { token, status, retryable },
        );
        const answer = await codeOf(engine.leases.release(command, caller));
        const wanted = machine.release(lease, who, token, status, retryable);
        expect(answer).to.equal(wanted === 'again' ? 'ok' : wanted);
      },
    ),
  );

const cancel = index.map((i) =>
  command(`cancel(${i})`, hasJobs, async (machine, engine) => {
    const job = jobAt(machine, i, machine.isLeased);
    expect(await codeOf(engine.jobs.cancel(job.jobId, {}, caller))).to.equal(machine.cancel(job));
  }),
);

const retry = index.map((i) =>
  command(`retry(${i})`, hasJobs, async (machine, engine) => {
    const job = jobAt(machine, i, machine.isEnded);
    expect(await codeOf(engine.jobs.retry(job.jobId, {}, caller))).to.equal(machine.retry(job));
  }),
);

const setCapacity = fc
  .tuple(
    fc.option(fc.oneof(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 15, max: 40 })), { freq: 3 }),
    fc.option(fc.constantFrom(0, 0, 0, 2, 5, 8, 10), { freq: 2 }),
  )
  .filter(([total, busy]) => total !== null || busy !== null)
  .map(([total, busy_rating]) =>
    command(`capacity(${total}, ${busy_rating})`, always, async (machine, engine) => {
      const capacity = await engine.capacity.set({ total, busy_rating }, caller);
      machine.setCapacity(total, busy_rating);
      const { used, usable } = machine;
      expect(capacity).to.include({ total: machine.total, used, usable, available: usable - used });
    }),
  );

const pass = fc
  .tuple(fc.constantFrom(20_000, 35_000, 70_000, 130_000), fc.boolean(), fc.boolean())
  .map(([ms, reaps, audits]) =>
    command(`pass(${ms}${reaps ? ', and the reaper comes' : ''})`, always, async (machine, engine) => {
      await letTimePass(engine.services.database, machine.pass(ms));
      if (audits) expect(await engine.services.capacity.runOnce(), 'miscounted units').to.equal(0);
      if (!reaps) return;
      await engine.services.reaper.runOnce();
      machine.reap();
    }),
  );

interface JobRow {
  job_id: string;
  is_live: boolean;
  state: number;
  attempts: number;
  claimed_by: string | null;
  lease_id: string | null;
  cancel_requested: boolean;
  dead_lettered: boolean;
  ready: string | null;
  wait_ms: number | null;
}

interface Rows {
  jobs: JobRow[] | null;
  ended: Record<string, number> | null;
  active: string[] | null;
  /** Each lease's number of heartbeats and its longest silence in milliseconds; null without heartbeats. */
  kept: Record<string, [heartbeats: number | null, silenceMs: number | null]> | null;
  used: number;
}

const look = `select
  (select json_agg(j) from (
    select job_id, true as is_live, state, attempts, claimed_by, lease_id, cancel_requested, false as dead_lettered,
      check_at::text as ready,
      extract(epoch from check_at - clock_timestamp()) * 1000 as wait_ms
    from live_jobs where coalesce(check_at < 'infinity', true)
    union all
    select job_id, true, state, attempts, claimed_by, lease_id, cancel_requested, false, 'infinity', null from live_jobs
    where check_at = 'infinity'
    union all
    select job_id, false, state, attempts, claimed_by, lease_id, cancel_requested, dead_stream is not null, null, null
    from job_outcomes) j) as jobs,
  (select json_object_agg(lease_id, state) from ${endedLeases}) as ended,
  (select json_object_agg(lease_id, json_build_array(heartbeats, longest_silence_ms)) from (
    select lease_id, heartbeats, longest_silence_ms from ${endedLeases}
    union all
    select lease_id, heartbeats, longest_silence_ms from live_jobs where lease_token is not null) l) as kept,
  (select json_agg(lease_id) from live_jobs where lease_token is not null) as active,
  (select used::int from capacity) as used`;

/** Asserts that every job, every lease and the capacity equal the model's. */
async function compare(machine: Machine, engine: Engine): Promise<void> {
  const [rows] = await engine.services.database.query<Rows>(look, []);
  if (!rows) throw new Error('nothing was read');
  const found = new Map((rows.jobs ?? []).map((row) => [row.job_id, row]));
  expect(found.size, 'a job that is both live and ended, or neither').to.equal(machine.jobs.length);
  expect(rows.jobs ?? []).to.have.length(machine.jobs.length);
  for (const job of machine.jobs) {
    const row = found.get(job.jobId);
    if (!row) return expect.fail(`job ${job.jobId} is gone`);
    if (typeof job.ready === 'number' && Number.isNaN(job.ready)) {
      // A requeue was just decided. Its backoff is random within bounds, and the model takes it from the row.
      const longest = backoffMs(job.backoffS, job.attempts, 0);
      expect(row.wait_ms).to.be.within(longest * 0.75 - 20_000, longest);
      job.ready = machine.now + (row.wait_ms ?? 0);
    }
    const { state, attempts, worker, cancelRequested, dead } = job;
    const seen = {
      state: stateNamed(row.state),
      isLive: row.is_live,
      attempts: row.attempts,
      leaseId: row.lease_id,
      cancelRequested: row.cancel_requested,
      dead: row.dead_lettered,
    };
    expect(seen).to.deep.equal({
      state,
      isLive: !machine.isEnded(job),
      attempts,
      leaseId: job.lease?.leaseId ?? null,
      cancelRequested,
      dead,
    });
    if (row.is_live) expect(row.claimed_by, 'the owner').to.equal(worker);
    if (state !== 'QUEUED') continue;
    const ready = row.ready === null ? 'now' : row.ready === 'infinity' ? 'parked' : 'later';
    expect(ready, `job ${job.jobId} in line`).to.equal(typeof job.ready === 'number' ? 'later' : job.ready);
  }
  const active = machine.leases.filter(({ state }) => state === 'ACTIVE').map(({ leaseId }) => leaseId);
  expect(rows.active ?? []).to.have.members(active);
  const ended = machine.leases.filter(({ state }) => state !== 'ACTIVE');
  expect(rows.ended ?? {}).to.deep.equal(
    Object.fromEntries(ended.map(({ leaseId, state }) => [leaseId, state === 'EXPIRED' ? 1 : 2])),
  );
  for (const { leaseId, heartbeats, silenceMs } of machine.leases) {
    const [count, ms] = rows.kept?.[leaseId] ?? expect.fail(`lease ${leaseId} is gone`);
    expect(count, 'heartbeats').to.equal(heartbeats || null);
    if (heartbeats === 0) expect(ms, 'the longest silence').to.equal(null);
    else expect(ms, 'the longest silence').to.be.within(silenceMs, silenceMs + 20_000);
  }
  expect(rows.used, 'units in use').to.equal(machine.used);
}

/** Events that do not change the state. */
const marks: Partial<Record<EventType, readonly State[]>> = {
  LEASE_DENIED: ['LEASE_PENDING'],
  LEASE_RELEASED: ['RUNNING'],
  LEASE_EXPIRED: ['LEASED', 'RUNNING'],
  CLAIM_EXPIRED: ['CLAIMED', 'PREPARING', 'LEASE_PENDING'],
  JOB_CANCEL_REQUESTED: ['LEASED', 'RUNNING'],
  JOB_UNSCHEDULABLE: ['QUEUED'],
  JOB_DEAD_LETTERED: ['FAILED', 'TIMEOUT'],
};

const isLegal = (type: EventType, from: State | null, to: State): boolean =>
  from === null
    ? type === 'JOB_SUBMITTED' && to === 'QUEUED'
    : transitions.some(
        (one) => one.event === type && one.to === to && (one.from as readonly State[]).includes(from),
      ) ||
      (from === to && (marks[type] ?? []).includes(from));

/**
 * Asserts that every job's history follows the table of transitions, from its submission to its current
 * state.
 */
async function checkHistory(machine: Machine, engine: Engine): Promise<void> {
  const events = await engine.services.database.query<{
    job_id: string;
    type: number;
    from_state: number | null;
    to_state: number;
  }>(`select job_id, type, from_state, to_state from ${allEvents} order by job_id, event_id`, []);
  for (const job of machine.jobs) {
    let at: State | null = null;
    let grants = 0;
    let told: EventType | undefined;
    for (const { type, from_state, to_state } of events.filter(({ job_id }) => job_id === job.jobId)) {
      const [name, from, to] = [
        eventNamed(type),
        from_state === null ? null : stateNamed(from_state),
        stateNamed(to_state),
      ];
      expect(from, `${name} goes on from where the job was`).to.equal(at);
      expect(isLegal(name, from, to), `${name} from ${from} to ${to}`).to.equal(true);
      at = to;
      if (name === 'LEASE_GRANTED') grants++;
      told = name;
    }
    expect(at, 'where the history ends').to.equal(job.state);
    expect(told === 'JOB_DEAD_LETTERED', 'told as a dead letter').to.equal(job.dead);
    expect(grants, 'leases in the history').to.equal(job.attempts);
  }
}

describe('the state machine compared with its model', () => {
  it('lists every type of event that does not change the state', () => {
    const known = new Set<EventType>([
      ...transitions.map(({ event }) => event),
      ...(Object.keys(marks) as EventType[]),
    ]);
    const rest = eventTypes.filter((type) => !known.has(type));
    expect(rest).to.deep.equal(['JOB_SUBMITTED']);
    expect(states).to.have.length(10);
  });

  onEveryEngine((kind) => {
    it('agrees with the model after every random command', async function () {
      this.timeout(30_000 + 4_000 * seconds);
      await using store = await kind.open();
      const engine = engineOn(store.database, settings);
      const weighed: [number, fc.Arbitrary<Command>][] = [
        [5, submit],
        [3, claim],
        [2, updateStatus],
        [4, request],
        [5, acquire],
        [4, beat],
        [5, release],
        [1, cancel],
        [1, retry],
        [1, retryDeadLetters],
        [1, setCapacity],
        [3, pass],
      ];
      const commands = fc.commands(
        weighed.flatMap(([weight, one]) => Array<fc.Arbitrary<Command>>(weight).fill(one)),
        { maxCommands: commandsMax, size: 'max' },
      );
      const first = fc.array(submit, { minLength: 3, maxLength: 6 });
      const property = fc.asyncProperty(first, commands, async (submits, given) => {
        await wipe(store.database);
        const machine = new Machine();
        await store.database.query('update capacity set total = $1', [machine.total]);
        for (const one of submits) await one.run(machine, engine);
        await fc.asyncModelRun(() => ({ model: machine, real: engine }), given);
        await checkHistory(machine, engine);
      });
      const until = performance.now() + seconds * 1000;
      try {
        for (let seed = firstSeed; performance.now() < until; seed++) {
          await fc.assert(property, {
            seed,
            numRuns: runsPerSeed,
            endOnFailure: !process.env.LEASEHOLD_TEST_MODEL_SHRINK,
          });
        }
      } finally {
        await engine.stop();
      }
    });
  });
});
