/** Leases that several servers and the reaper access at the same time, on concurrent connections. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import type { Grant } from '../../../../src/domain/leases/lease.ts';
import { draft } from '../../../../src/engine/jobs/submitter.ts';
import { newId } from '../../../../src/lib/uuid.ts';
import { openDatabase } from '../../../../src/store/open.ts';
import { onEveryEngine, type TestDatabase, type TestEngine } from '../../../support/engines.ts';
import { allEvents, endedLeases } from '../../../support/history.ts';
import type { TestedEngine as Engine } from '../../../support/jobs.ts';
import { caller, engineOn, engineSettings, submitted, submittedIds } from '../../../support/jobs.ts';
import {
  acquire,
  acquired,
  beatFor,
  claimedAndLeased,
  codeOf,
  everything,
  expectGranted,
  Holder,
  releaseFor,
  sameEachTime,
} from '../../../support/lease-helpers.ts';
import { sharedPostgres } from '../../../support/postgres.ts';
import { eventually } from '../../../support/server.ts';

const plenty = { ...engineSettings, capacityTotal: 1_000_000 };

/** Several servers on one database. `end` returns the number of deadlocks between them. */
class Servers {
  readonly store: TestDatabase;
  readonly engines: readonly Engine[];
  #ended = false;

  private constructor(store: TestDatabase, engines: readonly Engine[]) {
    this.store = store;
    this.engines = engines;
  }

  static async start(kind: TestEngine, count: number, settings = engineSettings): Promise<Servers> {
    const store = await kind.open();
    const engines: Engine[] = [];
    for (let i = 0; i < count; i++) engines.push(engineOn(await openDatabase(store.options), settings));
    return new Servers(store, engines);
  }

  at(i: number): Engine {
    return this.engines[i % this.engines.length] as Engine;
  }

  async submit(commands: readonly object[]): Promise<string[]> {
    const drafts = commands.map((command) =>
      draft({ addon_id: 'a', job_type: 't', cost_units: 1, ...command }, false, engineSettings),
    );
    return submittedIds(this.at(0), drafts);
  }

  count = async (table: string, where = 'true'): Promise<number> => {
    const [row] = await this.store.database.query<{ n: number }>(
      `select count(*)::int as n from ${table} where ${where}`,
      [],
    );
    return row?.n ?? 0;
  };

  /**
   * A connection reports its deadlocks at the latest when it ends. Deadlocks that a retry resolved are
   * reported nowhere else.
   */
  async end(): Promise<{ deadlocks: number }> {
    this.#ended = true;
    for (const engine of this.engines) await engine.stop();
    await Promise.all(this.engines.map(({ services }) => services.database.close()));
    await this.store.database.close();
    const name = new URL(this.store.options.url ?? '').pathname.slice(1);
    const cluster = await sharedPostgres();
    await eventually('all connections have ended', async () => {
      const left = await cluster.query(`select count(*) from pg_stat_activity where datname = '${name}'`);
      return left === '0' ? true : undefined;
    });
    return {
      deadlocks: Number(
        await cluster.query(`select deadlocks from pg_stat_database where datname = '${name}'`),
      ),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#ended) {
      for (const engine of this.engines) await engine.stop();
      await Promise.all(this.engines.map(({ services }) => services.database.close()));
    }
    await this.store.close();
  }
}

onEveryEngine((kind) => {
  // The embedded database has one connection, so no transaction waits for another one.
  if (kind.name !== 'postgresql') return;

  describe('a row that is locked until its lease has expired', () => {
    /** A lease that expires soon and whose row is locked, and other leases beside it. */
    async function held(servers: Servers, ms: number) {
      const [engine] = servers.engines as [Engine];
      await servers.submit([{}, {}, {}]);
      const [grant, ...others] = [await acquired(engine), await acquired(engine), await acquired(engine)];
      if (!grant) throw new Error('three were granted');
      await servers.store.database.query(
        `update live_jobs set expires_at = clock_timestamp() + $1::float8 * interval '1 ms' where lease_id = $2`,
        [ms, grant.lease.leaseId],
      );
      const holder = await Holder.holdJobs(servers.store, [grant.job.jobId]);
      const untilOver = () =>
        eventually('the lease has run out', async () => {
          const over = await holder.query(
            'select from live_jobs where lease_id = $1 and expires_at < clock_timestamp()',
            [grant.lease.leaseId],
          );
          return over.length > 0 ? true : undefined;
        });
      return { engine, grant, others, holder, untilOver };
    }

    it('rejects a heartbeat and a release that waited for the row, and writes nothing', async () => {
      await using servers = await Servers.start(kind, 2);
      const { engine, grant, holder, untilOver } = await held(servers, 1_500);
      const beat = codeOf(engine.leases.heartbeat(beatFor(grant, { progress: 1 }), caller));
      const release = codeOf(servers.at(1).leases.release(releaseFor(grant), caller));
      await holder.untilWaiting(2);
      await untilOver();
      const before = await everything(servers.store.database);
      await holder.letGo();
      expect(await Promise.all([beat, release])).to.deep.equal(['lease_not_active', 'lease_not_active']);
      expect(await everything(servers.store.database)).to.deep.equal(before);
    });

    it('does not delay heartbeats of other leases, even of the same frame', async () => {
      await using servers = await Servers.start(kind, 1);
      const { engine, grant, others, holder } = await held(servers, 60_000);
      const frame = [grant, ...others].map((one) => beatFor(one));
      const [waits, ...verdicts] = await engine.leases.heartbeatEach(frame);
      expect(verdicts.map((verdict) => 'kind' in verdict && verdict.kind)).to.deep.equal([
        'extended',
        'extended',
      ]);
      for (let beats = 0; beats < 20; beats++) {
        const more = await engine.leases.heartbeatMany(others.map((one) => beatFor(one)));
        expect(more.map((verdict) => verdict.kind)).to.deep.equal(['extended', 'extended']);
      }
      await holder.untilWaiting(1);
      await holder.letGo();
      expect(await waits).to.include({ kind: 'extended' });
    });

    it('rejects a status update and a lease request whose claim expired while they waited', async () => {
      await using servers = await Servers.start(kind, 1);
      const [engine] = servers.engines as [Engine];
      const [jobId] = await servers.submit([{}]);
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      await servers.store.database.query(
        "update live_jobs set claim_expires_at = clock_timestamp() + interval '700 ms'",
        [],
      );
      const holder = await Holder.holdJobs(servers.store, [jobId ?? '']);
      const moved = codeOf(engine.jobs.updateStatus(jobId ?? '', { state: 'PREPARING' }, caller));
      const leased = codeOf(engine.leases.request({ job_id: jobId ?? '' }, caller));
      await holder.untilWaiting(2);
      await eventually('the claim has run out', async () => {
        const over = await holder.query('select from live_jobs where claim_expires_at < clock_timestamp()');
        return over.length > 0 ? true : undefined;
      });
      await holder.letGo();
      expect(await Promise.all([moved, leased])).to.deep.equal(['job_not_claimed', 'job_not_claimed']);
      expect((await engine.jobs.get(jobId ?? '', caller)).job.state).to.equal('CLAIMED');
    });

    it('does not delay lease requests and status updates of other jobs in the batch', async () => {
      await using servers = await Servers.start(kind, 1);
      const [engine] = servers.engines as [Engine];
      const jobIds = await servers.submit(Array.from({ length: 6 }, () => ({})));
      const [locked = '', ended = '', ...free] = jobIds;
      await engine.jobs.claim({ worker_id: 'w', limit: jobIds.length }, caller);
      await engine.jobs.cancel(ended, {}, caller);
      const holder = await Holder.holdJobs(servers.store, [locked]);
      const prepare = (jobId: string) => engine.jobs.updateStatus(jobId, { state: 'PREPARING' }, caller);
      const cancel = (jobId: string) => engine.jobs.cancel(jobId, {}, caller);
      const request = async (jobId: string) => (await engine.leases.request({ job_id: jobId }, caller)).kind;
      const waiting = [prepare(locked), request(locked)];
      // Calls that arrive with the waiting ones, and calls that arrive later.
      for (let round = 0; round < 2; round++) {
        const [one = '', two = ''] = free.slice(2 * round);
        const codes = [prepare(ended), request(ended), prepare(newId()), request(newId())].map(codeOf);
        expect((await Promise.all([prepare(one), cancel(two)])).map(({ state }) => state)).to.deep.equal([
          'PREPARING',
          'CANCELED',
        ]);
        expect(await request(one)).to.equal('granted');
        expect(await Promise.all(codes)).to.deep.equal([
          'illegal_transition',
          'job_not_claimed',
          'job_not_found',
          'job_not_found',
        ]);
        await holder.untilWaiting(2);
      }
      await holder.letGo();
      const [prepared, requested] = await Promise.all(waiting.map((each) => each.catch(({ code }) => code)));
      expect(requested).to.equal('granted');
      // Either of the two may get the row first: a leased job cannot become PREPARING.
      if (prepared !== 'illegal_transition') expect(prepared).to.include({ state: 'PREPARING' });
      expect((await engine.jobs.get(locked, caller)).job.state).to.equal('RUNNING');
    });

    it('applies a cancellation that waited, and drops one whose caller canceled the call', async () => {
      await using servers = await Servers.start(kind, 1);
      const [engine] = servers.engines as [Engine];
      const [jobId = ''] = await servers.submit([{}]);
      const holder = await Holder.holdJobs(servers.store, [jobId]);
      const gone = new AbortController();
      const impatient = codeOf(engine.jobs.cancel(jobId, {}, { ...caller, signal: gone.signal }));
      await holder.untilWaiting(1);
      gone.abort();
      expect(await impatient).to.equal('canceled');
      const patient = engine.jobs.cancel(jobId, {}, caller);
      await holder.untilWaiting(1);
      const stopped = engine.services.jobUpdater.close();
      await holder.letGo();
      expect(await patient).to.include({ state: 'CANCELED' });
      await stopped;
    });

    it('keeps a lease that was renewed while a reaper found it due', async () => {
      await using servers = await Servers.start(kind, 2);
      const { engine, grant, holder, untilOver } = await held(servers, 300);
      await untilOver();
      // The holder of the row lock renews the lease. The reaper skips the row and later finds it renewed.
      await servers.store.database.query('update live_jobs set check_at = expires_at where lease_id <> $1', [
        grant.lease.leaseId,
      ]);
      await holder.query(
        `update live_jobs set check_at = expires_at, expires_at = clock_timestamp() + interval '60 s'
        where lease_id = $1`,
        [grant.lease.leaseId],
      );
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      await holder.letGo();
      expect(await engine.services.reaper.runOnce()).to.equal(0);
      expect(await servers.count('live_jobs', 'check_at = expires_at')).to.equal(3);
    });
  });

  describe('a release that races the reaper', () => {
    it('wins or loses 2,000 times, never both, and frees the units once', async () => {
      const leases = 2_000;
      const withinMs = 1_500;
      await using servers = await Servers.start(kind, 4, plenty);
      const [one, two, ...reapers] = servers.engines as [Engine, Engine, ...Engine[]];
      await servers.submit(Array.from({ length: leases }, (_, i) => ({ cost_units: 1 + (i % 7) })));
      const grants = await Promise.all(
        Array.from({ length: leases }, (_, i) => acquired(i % 2 === 0 ? one : two, `w${i}`)),
      );
      // Each lease expires at its own time, and its release comes at about that time.
      const due = grants.map(() => 600 + Math.random() * withinMs);
      const since = performance.now();
      await servers.store.database.query(
        `update live_jobs live set expires_at = now() + due.ms * interval '1 ms', check_at = now() + due.ms * interval '1 ms'
        from unnest($1::uuid[], $2::float8[]) as due (lease_id, ms) where live.lease_id = due.lease_id`,
        [grants.map(({ lease }) => lease.leaseId), due],
      );
      const codes = grants.map(async (grant, i) => {
        // Early enough that some are in time on a slow machine, and late enough that some are not on a fast
        // one.
        await delay(since + (due[i] as number) - 250 + Math.random() * 350 - performance.now());
        return codeOf((i % 2 === 0 ? one : two).leases.release(releaseFor(grant), caller));
      });
      const handled = reapers.map(async (engine) => {
        let sum = 0;
        while (performance.now() - since < withinMs + 1_000) {
          sum += await engine.services.reaper.runOnce();
          await delay(2);
        }
        return sum;
      });
      const answers = await Promise.all(codes);
      const reaped = (await Promise.all(handled)).reduce((sum, n) => sum + n, 0);
      const won = answers.filter((code) => code === 'ok').length;
      expect(new Set(answers)).to.deep.equal(new Set(['ok', 'lease_not_active']));
      expect(won, 'both win now and then').to.be.within(leases / 20, leases - leases / 20);
      expect(reaped).to.equal(leases - won);
      expect(await servers.count('live_jobs')).to.equal(0);
      expect(await servers.count(endedLeases, 'state = 2')).to.equal(won);
      expect(await servers.count(endedLeases, 'state = 1')).to.equal(leases - won);
      const told = await servers.store.database.query<{ types: string; state: number; n: number }>(
        `select types, state, count(*)::int as n from (
          select job_id, string_agg(type::text, ' ' order by event_id) as types from ${allEvents} group by job_id
        ) history join job_outcomes using (job_id) group by types, state order by state`,
        [],
      );
      // Granted, running, released, done; or granted, expired, timed out.
      expect(told).to.deep.equal([
        { types: '0 4 6 7 11', state: 6, n: won },
        { types: '0 4 8 13', state: 9, n: leases - won },
      ]);
      expect(await one.capacity.get(caller)).to.include({ used: 0 });
      expect(await one.services.capacity.runOnce()).to.equal(0);
      for (const [i, answer] of answers.entries()) {
        const { job } = grants[i] as Grant;
        if (i % 100 === 0) {
          const { state } = (await one.jobs.get(job.jobId, caller)).job;
          expect(state, 'what its worker was told').to.equal(answer === 'ok' ? 'DONE' : 'TIMEOUT');
        }
      }
      expect(await servers.end()).to.deep.equal({ deadlocks: 0 });
    }).timeout(60_000);
  });

  describe('the capacity', () => {
    /** Rejects every statement, of any server, that uses more units than are usable. */
    const guard = [
      `create function no_oversell() returns trigger language plpgsql as $$ begin
        if new.used > old.used and new.used > floor(coalesce(new.total, 100) * (10 - new.busy_rating) / 10.0) then
          raise exception 'oversold: % of % at %', new.used, new.total, new.busy_rating;
        end if;
        return new;
      end $$`,
      'create trigger no_oversell before update on capacity for each row execute function no_oversell()',
    ];

    it('grants one of two concurrent requests for more than half of the capacity', async () => {
      await using servers = await Servers.start(kind, 2);
      const [here, there] = servers.engines as [Engine, Engine];
      for (const how of ['request', 'acquire'] as const) {
        const jobIds = await servers.submit([{ cost_units: 60 }, { cost_units: 60 }]);
        if (how === 'request') await here.jobs.claim({ worker_id: 'w', limit: 2 }, caller);
        const holder = await Holder.hold(servers.store, 'select from capacity for update');
        const asks = [here, there].map((engine, i) =>
          how === 'acquire'
            ? acquire(engine, `w${i}`)
            : engine.leases.request({ job_id: jobIds[i] ?? '' }, caller),
        );
        await holder.untilWaiting(2);
        await holder.letGo();
        const outcomes = await Promise.all(asks);
        expect(
          outcomes.map((outcome) => outcome.kind),
          how,
        ).to.have.members(['granted', 'denied']);
        expect(await here.capacity.get(caller)).to.include({ used: 60 });
        for (const outcome of outcomes) {
          if (outcome.kind === 'granted') await here.leases.release(releaseFor(outcome), caller);
        }
        for (const jobId of jobIds) await codeOf(here.jobs.cancel(jobId, {}, caller));
      }
    });

    it('never oversells or grants a job twice while servers grant, release and resize', async () => {
      const jobs = 300;
      await using servers = await Servers.start(kind, 4);
      for (const text of guard) await servers.store.database.query(text, []);
      await servers.submit(Array.from({ length: jobs }, (_, i) => ({ cost_units: 1 + ((i * 7) % 40) })));
      const handedOut: string[] = [];
      let busy = true;
      const finish = async (engine: Engine, grant: Grant) => {
        handedOut.push(grant.job.jobId);
        if (Math.random() < 0.5) await engine.leases.heartbeat(beatFor(grant), caller);
        await engine.leases.release(releaseFor(grant), caller);
      };
      const acquirer = async (engine: Engine, workerId: string) => {
        while (busy) {
          const outcome = await acquire(engine, workerId);
          if (outcome.kind === 'granted') await finish(engine, outcome);
          else await delay(outcome.reason === 'No jobs available' ? 10 : 2);
        }
      };
      const requester = async (engine: Engine, workerId: string) => {
        while (busy) {
          const [job] = await engine.jobs.claim({ worker_id: workerId }, caller);
          if (!job) await delay(5);
          while (job && busy) {
            const outcome = await engine.leases.request({ job_id: job.jobId }, caller);
            if (outcome.kind === 'granted') {
              await finish(engine, outcome);
              break;
            }
            await delay(2);
          }
        }
      };
      const changer = async (engine: Engine) => {
        for (let i = 0; busy; i++) {
          await engine.capacity.set({ total: 60 + ((i * 13) % 60), busy_rating: (i * 3) % 4 }, caller);
          await delay(20);
        }
      };
      const workers = servers.engines.flatMap((engine, i) => [
        ...[0, 1, 2, 3].map((n) => acquirer(engine, `a${i}.${n}`)),
        ...[0, 1, 2].map((n) => requester(engine, `r${i}.${n}`)),
      ]);
      const changing = [changer(servers.at(0)), changer(servers.at(1))];
      const left = () => servers.count('live_jobs');
      const all = Promise.all([...workers, ...changing]).catch((error) => {
        busy = false;
        throw error;
      });
      const done = eventually('all jobs are done', async () =>
        !busy || (await left()) === 0 ? true : undefined,
      );
      await done;
      busy = false;
      await all;
      expect(handedOut).to.have.length(jobs);
      expect(new Set(handedOut).size).to.equal(jobs);
      expect(await servers.count('job_outcomes', 'state = 6 and attempts = 1')).to.equal(jobs);
      expect(await servers.at(0).capacity.get(caller)).to.include({ used: 0, reserved: 0 });
      expect(await servers.end()).to.deep.equal({ deadlocks: 0 });
    }).timeout(60_000);
  });

  describe('concurrent calls on several servers', () => {
    it('causes no deadlock on the same leases in any order', async () => {
      const leases = 150;
      await using servers = await Servers.start(kind, 4, plenty);
      const [one, two, three, four] = servers.engines as [Engine, Engine, Engine, Engine];
      for (let round = 0; round < 6; round++) {
        await servers.submit(Array.from({ length: leases }, () => ({})));
        const grants = await Promise.all(Array.from({ length: leases }, () => acquired(one)));
        const backwards = [...grants].reverse();
        const release = (engine: Engine, some: readonly Grant[]) =>
          Promise.all(
            some.map((grant) => codeOf(engine.leases.release(releaseFor(grant, { token: null }), caller))),
          );
        const cancel = (engine: Engine, some: readonly Grant[]) =>
          Promise.all(some.map(({ job }) => codeOf(engine.jobs.cancel(job.jobId, {}, caller))));
        const [here, there] = await Promise.all([
          release(one, grants),
          release(two, backwards),
          cancel(three, backwards),
          cancel(four, grants),
          four.leases.heartbeatMany(grants.map((grant) => beatFor(grant))),
        ]);
        const both = grants.map((_, i) => [here[i], there[leases - 1 - i]].sort());
        for (const codes of both) expect(codes).to.deep.equal(['lease_not_active', 'ok']);
      }
      expect(await one.capacity.get(caller)).to.include({ used: 0 });
      expect(await servers.end()).to.deep.equal({ deadlocks: 0 });
    }).timeout(60_000);

    it('grants a repeated request once across servers', async () => {
      await using servers = await Servers.start(kind, 2);
      const rounds = 25;
      await servers.submit(Array.from({ length: 4 * rounds }, () => ({})));
      for (let round = 0; round < rounds; round++) {
        const ask = { request_id: `r${round}` };
        const [here, there, again] = await Promise.all(
          [0, 1, 0].map((i) => acquired(servers.at(i), 'w', ask)),
        );
        expect(sameEachTime(here)).to.deep.equal(sameEachTime(there));
        expect(sameEachTime(here)).to.deep.equal(sameEachTime(again));
        const [job] = await servers.at(0).jobs.claim({ worker_id: 'w' }, caller);
        const request = { job_id: job?.jobId ?? '', request_id: `q${round}` };
        const grants = await Promise.all(
          [0, 1].map(async (i) => expectGranted(await servers.at(i).leases.request(request, caller))),
        );
        expect(sameEachTime(grants[0])).to.deep.equal(sameEachTime(grants[1]));
      }
      expect(await servers.count('live_jobs', 'lease_token is not null')).to.equal(2 * rounds);
      expect(await servers.at(0).capacity.get(caller)).to.include({ used: 2 * rounds });
    });

    it('grants one of two unique jobs to a worker that asks two servers at once', async () => {
      await using servers = await Servers.start(kind, 2);
      for (let round = 0; round < 25; round++) {
        await servers.submit([{ unique: true }, { unique: true }]);
        const holder = await Holder.hold(servers.store, 'select from capacity for update');
        const asks = [0, 1].map((i) => acquire(servers.at(i), 'w'));
        await holder.untilWaiting(2);
        await holder.letGo();
        const outcomes = await Promise.all(asks);
        expect(outcomes.map((outcome) => outcome.kind)).to.have.members(['granted', 'denied']);
        for (const outcome of outcomes) {
          if (outcome.kind === 'granted') await servers.at(0).leases.release(releaseFor(outcome), caller);
        }
        await acquired(servers.at(1), `rest${round}`);
      }
    });

    it("accepts only the successor's lease once a job has gone to another worker", async () => {
      await using servers = await Servers.start(kind, 2);
      const [here, there] = servers.engines as [Engine, Engine];
      await submitted(here, { max_attempts: 5, retry_backoff_s: 0 });
      let fence = 0n;
      let zombie: Grant | undefined;
      for (const workerId of ['first', 'second', 'first', 'first']) {
        const grant = await (workerId === 'second' ? claimedAndLeased : acquired)(there, workerId);
        expect(BigInt(grant.lease.fence) > fence).to.equal(true);
        fence = BigInt(grant.lease.fence);
        if (zombie) {
          const old = zombie;
          const before = await everything(servers.store.database);
          // With its own lease, and with its own name or token on the successor's.
          const proofs = [
            {},
            { leaseId: grant.lease.leaseId },
            { leaseId: grant.lease.leaseId, workerId: old.lease.workerId },
            { leaseId: grant.lease.leaseId, workerId: grant.lease.workerId },
          ];
          for (const proof of proofs) {
            const token = { token: old.token };
            const beat = codeOf(here.leases.heartbeat(beatFor(old, { ...token, ...proof }), caller));
            const end = codeOf(here.leases.release(releaseFor(old, proof), caller));
            expect(await beat).to.be.oneOf(['lease_not_active', 'worker_mismatch', 'token_mismatch']);
            expect(await end).to.equal(await beat);
          }
          expect(await everything(servers.store.database)).to.deep.equal(before);
        }
        await servers.store.database.query(
          "update live_jobs set expires_at = expires_at - interval '61 s', check_at = check_at - interval '61 s'",
          [],
        );
        await here.services.reaper.runOnce();
        zombie = grant;
      }
    });
  });
});
