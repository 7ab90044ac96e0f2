import { expect } from 'chai';
import type { ClaimJobs } from '../../../src/domain/requests/scheduler.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted } from '../../support/jobs.ts';
import { acquired, expectDenied, freshForEach, releaseFor } from '../../support/lease-helpers.ts';

describe('a claim of unique jobs', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    const claim = async (workerId: string, more: Partial<ClaimJobs> = {}) =>
      (await stage.engine.jobs.claim({ worker_id: workerId, ...more }, caller)).map(({ jobId }) => jobId);

    const holding = async (workerId: string) => {
      await submitted(stage.engine, { priority: 'URGENT' });
      return acquired(stage.engine, workerId);
    };

    for (const [how, more] of [
      ['without a request_id', {}],
      ['with a request_id', { request_id: 'r' }],
    ] as const) {
      it(`skips unique jobs for a worker that holds a lease, ${how} (D3)`, async () => {
        const held = await holding('w');
        const [unique, common] = await submitted(stage.engine, { unique: true, priority: 'HIGH' }, {});
        expect(await claim('w', more)).to.deep.equal([common?.jobId]);
        expect(await claim('w', { request_id: `${how}: another` })).to.deep.equal([]);
        await stage.engine.leases.release(releaseFor(held), caller);
        expect(await claim('w')).to.deep.equal([unique?.jobId]);
      });
    }

    it('finds all common jobs behind many unique ones (D3)', async () => {
      await holding('w');
      await submitted(
        stage.engine,
        ...Array.from({ length: 120 }, () => ({ unique: true, priority: 'HIGH' as const })),
      );
      const common = await submitted(stage.engine, ...Array.from({ length: 30 }, () => ({})));
      expect(await claim('w', { limit: 50 })).to.deep.equal(common.map(({ jobId }) => jobId));
    });

    it('fills the limit of a worker with a lease from between unique jobs (D3)', async () => {
      await holding('w');
      const jobs = await submitted(
        stage.engine,
        ...Array.from({ length: 40 }, (_, i) => ({ unique: i % 2 === 0 })),
      );
      const common = jobs.filter((_, i) => i % 2 === 1).map(({ jobId }) => jobId);
      expect(await claim('w', { limit: 15 })).to.deep.equal(common.slice(0, 15));
    });

    it('gives unique jobs to other workers that claim at the same time (D3)', async () => {
      const held = await holding('holder');
      const jobs = await submitted(
        stage.engine,
        ...Array.from({ length: 40 }, (_, i) => ({ unique: i % 2 === 0 })),
      );
      const uniqueIds = new Set(jobs.filter((_, i) => i % 2 === 0).map(({ jobId }) => jobId));
      const workers = Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? held.lease.workerId : `free-${i}`));
      const answers = await Promise.all(workers.map((worker) => claim(worker, { limit: 2 })));
      const claimed = answers.flat();
      expect(new Set(claimed).size).to.equal(claimed.length);
      const [ofHolder, ofOthers] = [0, 1].map((odd) => answers.filter((_, i) => i % 2 === odd).flat());
      expect(ofHolder?.filter((id) => uniqueIds.has(id))).to.deep.equal([]);
      expect(ofOthers).to.have.length(20);
      expect(ofOthers?.filter((id) => uniqueIds.has(id))).to.not.be.empty;
    });

    it('claims a unique job once the lease has expired, before the reaper ends it (D3)', async () => {
      const held = await holding('w');
      const [unique] = await submitted(stage.engine, { unique: true });
      await stage.store.database.query(
        "update live_jobs set expires_at = clock_timestamp() - interval '1 s', check_at = clock_timestamp() + interval '1 h' where job_id = $1",
        [held.job.jobId],
      );
      expect(await claim('w')).to.deep.equal([unique?.jobId]);
    });

    it("keeps a claim's expiry when its lease request is denied as unique (D3)", async () => {
      const [unique] = await submitted(stage.engine, { unique: true });
      await claim('w');
      await holding('w');
      const { jobId = '' } = unique ?? {};
      const before = (await stage.engine.jobs.get(jobId, caller)).job.claimExpiresAtMs;
      const ask = await stage.engine.leases.request({ job_id: jobId }, caller);
      expect(expectDenied(ask).reason).to.match(/unique/);
      const { state, claimExpiresAtMs } = (await stage.engine.jobs.get(jobId, caller)).job;
      expect([state, claimExpiresAtMs]).to.deep.equal(['LEASE_PENDING', before]);
    });
  });
});
