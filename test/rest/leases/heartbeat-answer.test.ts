/**
 * The guarantee: the queue contract's heartbeat answers with the lease and the job that its own statement
 * wrote and read.
 */
import { expect } from 'chai';
import { Query } from '../../../src/rest/http/query.ts';
import { jobIntent } from '../../../src/rest/jobs/schemas.ts';
import { queueLeaseRoutes } from '../../../src/rest/leases/routes.ts';
import { leaseRecord } from '../../../src/rest/leases/schemas.ts';
import { systemRoutes } from '../../../src/rest/system/routes.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquired, codeOf, freshForEach, Holder } from '../../support/lease-helpers.ts';
import { MetricsText } from '../../support/metrics-text.ts';

const sisters = {
  queue: (engine: TestedEngine) => queueLeaseRoutes(engine),
  system: (engine: TestedEngine) => systemRoutes(engine),
};

/** Calls the route of a heartbeat, as the server does after it has found the route. */
async function heartbeat(engine: TestedEngine, api: keyof typeof sisters, leaseId: string, more: object) {
  const route = sisters[api](engine).find(({ path }) => path.endsWith('{lease_id}/heartbeat'));
  if (!route) return expect.fail('there is no such route');
  const body = { worker_id: 'w', ...more };
  const answer = await route.handle({
    path: { lease_id: leaseId },
    query: new Query(),
    headers: {},
    body,
    caller,
  });
  return answer.body as { lease: Record<string, unknown>; job: Record<string, unknown> };
}

describe('the answer to a heartbeat of the queue contract', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    async function grantedLease() {
      await submitted(stage.engine, { tags: ['a'], payload: { n: 1 }, max_runtime_s: 500 });
      return acquired(stage.engine);
    }

    /** How many statements and transactions the work takes. */
    async function statementsOf(work: () => Promise<unknown>): Promise<number> {
      const { database, metrics } = stage.engine.services;
      database.meter = metrics.database();
      const count = () => {
        const text = new MetricsText(metrics.registry.render());
        const kinds = ['statement', 'transaction'].map((one) =>
          text.value('leasehold_database_duration_seconds_count', { kind: one }),
        );
        return kinds.reduce<number>((sum, each) => sum + (each ?? 0), 0);
      };
      const before = count();
      await work();
      return count() - before;
    }

    for (const api of ['queue', 'system'] as const) {
      it(`takes one statement in the ${api} API`, async () => {
        const { lease } = await grantedLease();
        const beat = () => heartbeat(stage.engine, api, lease.leaseId, { progress: 0.5 });
        // The first call may also have to check for an outage.
        await beat();
        expect(await statementsOf(beat)).to.equal(1);
      });
    }

    it('shows the lease and the job as they are stored', async () => {
      const { lease } = await grantedLease();
      const more = { progress: 0.25, message: 'warming' };
      const { lease: shown, job } = await heartbeat(stage.engine, 'queue', lease.leaseId, more);
      expect(job).to.include({ progress: 0.25, note: 'warming', state: 'RUNNING', max_runtime_s: 500 });
      const stored = await stage.engine.leases.get(lease.leaseId, caller);
      expect({ lease: shown, job }).to.deep.equal({
        lease: leaseRecord(stored.lease),
        job: jobIntent(stored.job),
      });
    });

    it('shows the lease and the job to each of several heartbeats for one lease', async () => {
      const { lease } = await grantedLease();
      const beats = [0.25, 0.5, 0.75].map((progress) =>
        heartbeat(stage.engine, 'queue', lease.leaseId.toUpperCase(), { progress }),
      );
      for (const { lease: shown, job } of await Promise.all(beats)) {
        expect(shown).to.include({ lease_id: lease.leaseId, state: 'ACTIVE' });
        expect(job).to.include({ job_id: lease.jobId, progress: 0.75 });
      }
    });

    it('gives the reason and shows no job where the lease cannot be extended', async () => {
      const { lease } = await grantedLease();
      const other = { worker_id: 'x' };
      expect(await codeOf(heartbeat(stage.engine, 'queue', lease.leaseId, other))).to.equal(
        'worker_mismatch',
      );
      const token = { lease_token: lease.leaseId };
      expect(await codeOf(heartbeat(stage.engine, 'queue', lease.leaseId, token))).to.equal('token_mismatch');
      expect(await codeOf(heartbeat(stage.engine, 'queue', lease.jobId, {}))).to.equal('lease_not_found');
    });

    if (kind.name === 'postgresql') {
      it('waits for a row that another transaction has locked', async () => {
        const { lease } = await grantedLease();
        const holder = await Holder.holdJobs(stage.store, [lease.jobId]);
        const waiting = heartbeat(stage.engine, 'queue', lease.leaseId, { progress: 0.5 });
        await holder.untilWaiting(1);
        await holder.letGo();
        const { lease: shown, job } = await waiting;
        expect(shown).to.include({ lease_id: lease.leaseId, state: 'ACTIVE' });
        expect(job).to.include({ job_id: lease.jobId, progress: 0.5 });
      });
    }
  });
});
