/** The guarantee: an answer about a job is based on one read of it, also if the job changes meanwhile. */
import { expect } from 'chai';
import { stateNumber } from '../../../src/domain/jobs/state-machine.ts';
import type { TransactionSql } from '../../../src/store/connection/sql.ts';
import type { Database } from '../../../src/store/database.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, freshForEach, Holder, moreServers, releaseFor } from '../../support/lease-helpers.ts';

/** Once armed, acts before the next statement of a transaction that reads whole jobs. */
class BeforeJobsAreRead {
  isArmed = false;
  wasDone = false;

  constructor(database: Database, act: () => Promise<unknown>) {
    const transaction = database.transaction;
    database.transaction = (work, signal) => {
      const watched = async (sql: TransactionSql) =>
        work({
          query: async (text, params, given) => {
            if (this.isArmed && !this.wasDone && text.includes('from job_outcomes outcome cross join')) {
              this.wasDone = true;
              database.transaction = transaction;
              await act();
            }
            return sql.query(text, params, given);
          },
          em: (given) => sql.em(given),
          seal: () => sql.seal(),
        });
      return transaction.call(database, watched, signal) as Promise<never>;
    };
  }
}

onEveryEngine((kind) => {
  // The embedded database has one connection: nothing runs between two statements of a transaction.
  if (kind.name !== 'postgresql') return;

  describe('a job that changes between two statements of a transaction', () => {
    const stage = freshForEach(kind);
    let servers: Awaited<ReturnType<typeof moreServers>>;
    let other: TestedEngine;
    beforeEach(async () => {
      servers = await moreServers(stage.store, 1);
      other = servers.engines[0] as TestedEngine;
    });
    afterEach(() => servers.stop());

    it('retries a job that ends after the retry has found it running', async () => {
      await submitted(stage.engine, {});
      const grant = await acquired(stage.engine);
      const ending = new BeforeJobsAreRead(stage.store.database, () =>
        other.leases.release(releaseFor(grant, { status: 'FAILED' }), caller),
      );
      ending.isArmed = true;
      const job = await stage.engine.jobs.retry(grant.job.jobId, {}, caller);
      expect(ending.wasDone).to.equal(true);
      expect(job.state).to.equal('QUEUED');
    });

    for (const { what, ask } of [
      {
        what: 'is leased',
        ask: async (engine: TestedEngine, job_id: string) =>
          (await engine.leases.request({ job_id }, caller)).kind,
      },
      {
        what: 'is cancelled',
        ask: async (engine: TestedEngine, jobId: string) =>
          (await engine.jobs.cancel(jobId, {}, caller)).state,
      },
    ]) {
      it(`rereads a job that was retried and claimed after its row was deleted, and it ${what}`, async () => {
        const [{ jobId } = { jobId: '' }] = await submitted(stage.engine, {});
        await stage.engine.jobs.claim({ worker_id: 'w' }, caller);
        const holder = await Holder.holdJobs(stage.store, [jobId]);
        const returning = new BeforeJobsAreRead(stage.store.database, async () => {
          await other.jobs.retry(jobId, {}, caller);
          await other.jobs.claim({ worker_id: 'w' }, caller);
        });
        const asked = ask(stage.engine, jobId);
        await holder.untilWaiting(1);
        returning.isArmed = true;
        await holder.query(
          `with gone as (delete from live_jobs where job_id = $1 returning *)
          insert into job_outcomes (job_id, state, attempts, cancel_requested, finished_at)
          select job_id, $2, attempts, false, clock_timestamp() from gone`,
          [jobId, stateNumber('CANCELED')],
        );
        await holder.letGo();
        expect(await asked).to.be.oneOf(['granted', 'CANCELED']);
        expect(returning.wasDone).to.equal(true);
      });
    }
  });
});
