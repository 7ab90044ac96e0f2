/** The guarantee: a repeated request for a lease gets its grant while the lease lasts, and 409 afterwards. */
import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import { eventNumber, stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import type { Grant, LeaseOutcome } from '../../../src/domain/leases/lease.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';
import {
  claimedAndLeased,
  freshForEach,
  Holder,
  moreServers,
  releaseFor,
} from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

const ask = { request_id: 'lost answer' };

/** The refusal of a request, as the client sees it. */
const refusalOf = (answer: Promise<LeaseOutcome>): Promise<string> =>
  answer.then(
    ({ kind }) => kind,
    (error: unknown) => {
      if (error instanceof DomainError) return error.message;
      throw error;
    },
  );
const replayOf = (engine: TestedEngine, { job }: Grant): Promise<string> =>
  refusalOf(engine.leases.request({ job_id: job.jobId, ...ask }, caller));

const expired = /^job_not_claimed: the job's lease expired at \d{4}-\d\d-\d\dT[\d:.]+Z$/;

onEveryEngine((kind) => {
  describe('a repeated request for a lease', () => {
    const stage = freshForEach(kind);
    const leased = async (more = {}): Promise<Grant> => {
      await submitted(stage.engine, { retry_backoff_s: 0, ...more });
      return claimedAndLeased(stage.engine, 'w', ask);
    };

    it('rejects a repeat with job_not_claimed after expiry, before and after the reaper', async () => {
      const grant = await leased();
      expect(await replayOf(stage.engine, grant)).to.equal('granted');
      await letTimePass(stage.store.database, 60_001);
      expect(await replayOf(stage.engine, grant)).to.match(expired);
      expect(await stage.engine.services.reaper.runOnce()).to.equal(1);
      expect(await replayOf(stage.engine, grant)).to.equal('job_not_claimed: the job is TIMEOUT');
    });

    /** Repeats a request in a batch that runs a statement between the lock of the row and the answer. */
    const replayBeside = async (grant: Grant, statement: string): Promise<string> => {
      const { database } = stage.store;
      await submitted(stage.engine, { cost_units: 60 });
      const [other] = await stage.engine.jobs.claim({ worker_id: 'w' }, caller);
      // Another request of the batch is denied. Its event is written after the row lock and before the grant
      // is read.
      await database.query(
        `create function beside() returns trigger language plpgsql as $$ begin ${statement}; return new; end $$`,
        [],
      );
      await database.query(
        `create trigger beside after insert on job_events for each row
          when (new.type = ${eventNumber('LEASE_DENIED')}) execute function beside()`,
        [],
      );
      const [replay, denied] = await Promise.all([
        replayOf(stage.engine, grant),
        refusalOf(stage.engine.leases.request({ job_id: other?.jobId ?? '' }, caller)),
      ]).finally(() => database.query('drop function beside cascade', []));
      expect(denied).to.equal('denied');
      return replay;
    };
    const endLease = `update live_jobs set expires_at = clock_timestamp() - interval '1 s' where state = ${stateNumber('RUNNING')}`;

    it('rejects a repeat with job_not_claimed if the lease expires while it is processed', async () => {
      const grant = await leased({ cost_units: 60 });
      expect(await replayBeside(grant, endLease)).to.match(expired);
    });

    it('repeats the grant if the lease expires meanwhile because no server was alive', async () => {
      const grant = await leased({ cost_units: 60 });
      const outage = "update pulse set alive_at = clock_timestamp() - interval '10 s'";
      expect(await replayBeside(grant, `${endLease}; ${outage}`)).to.equal('granted');
    });

    if (kind.name !== 'postgresql') return;

    const holdCapacity = () => Holder.hold(stage.store, 'select from capacity for update');
    const letExpireIn = (ms: number) =>
      stage.store.database.query(
        "update live_jobs set expires_at = clock_timestamp() + $1::float8 * interval '1 ms'",
        [ms],
      );
    const untilExpired = (holder: Holder) =>
      eventually('the lease has run out', async () => {
        const over = await holder.query('select from live_jobs where expires_at <= clock_timestamp()');
        return over.length > 0 ? true : undefined;
      });

    it('rejects a repeat whose lease expires while it waits for the capacity row', async () => {
      const grant = await leased();
      const holder = await holdCapacity();
      await letExpireIn(1_500);
      const replay = replayOf(stage.engine, grant);
      await holder.untilWaiting(1);
      await untilExpired(holder);
      await holder.letGo();
      expect(await replay).to.match(expired);
    });

    it('rejects a repeat whose lease expires while it waits for its row, then the capacity', async () => {
      const grant = await leased();
      const rows = await Holder.holdJobs(stage.store, [grant.job.jobId]);
      await rows.query("update live_jobs set expires_at = clock_timestamp() + interval '2 s'");
      const replay = replayOf(stage.engine, grant);
      await rows.untilWaiting(1);
      const capacity = await holdCapacity();
      await rows.letGo();
      await eventually('the request waits for the capacity', async () => {
        const blocked = await capacity.query(
          'select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))',
        );
        return blocked.length > 0 ? true : undefined;
      });
      await untilExpired(capacity);
      await capacity.letGo();
      expect(await replay).to.match(expired);
    });

    const reap = (engine: TestedEngine) => engine.services.reaper.runOnce();
    const release = (engine: TestedEngine, grant: Grant) => engine.leases.release(releaseFor(grant), caller);
    for (const { what, passesMs, end, job, state } of [
      { what: 'is reaped', passesMs: 60_001, end: reap, job: { max_attempts: 1 }, state: 'TIMEOUT' },
      {
        what: 'is reaped and its job requeued',
        passesMs: 60_001,
        end: reap,
        job: { max_attempts: 2 },
        state: 'QUEUED; claim it first',
      },
      { what: 'is released', passesMs: 0, end: release, job: {}, state: 'DONE' },
    ]) {
      it(`rejects a repeat with job_not_claimed if the lease ${what} while it waits for the row`, async () => {
        const grant = await leased(job);
        const servers = await moreServers(stage.store, 1);
        await letTimePass(stage.store.database, passesMs);
        const holder = await holdCapacity();
        // The statement has locked the row and waits for the capacity.
        const ending = end(servers.engines[0] as TestedEngine, grant);
        await holder.untilWaiting(1);
        const replay = replayOf(stage.engine, grant);
        await holder.untilWaiting(2);
        await holder.letGo();
        await ending;
        expect(await replay).to.equal(`job_not_claimed: the job is ${state}`);
        await servers.stop();
      });
    }
  });
});
