import { expect } from 'chai';
import type { ClaimJobs } from '../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted } from '../../support/jobs.ts';
import { freshForEach } from '../../support/lease-helpers.ts';

describe('a claim among jobs that cost more than the total capacity', () => {
  onEveryEngine((kind) => {
    const stage = freshForEach(kind);

    const claim = async (more: Partial<ClaimJobs> = {}) =>
      (await stage.engine.jobs.claim({ worker_id: 'w', ...more }, caller)).map(({ jobId }) => jobId);
    const typesOf = async (jobId: string | undefined) =>
      (await stage.engine.jobs.events(jobId ?? '', {}, caller)).items.map(({ type }) => type);

    for (const [how, more] of [
      ['passes', {}],
      ['with a request_id passes', { request_id: 'r' }],
    ] as const) {
      it(`skips a job that exceeds the total (a claim ${how} over it), and records that once`, async () => {
        const [giant, unique, small] = await submitted(
          stage.engine,
          { cost_units: 101, priority: 'URGENT' },
          { cost_units: 102, unique: true },
          { cost_units: 100 },
        );
        expect(await claim(more)).to.deep.equal([small?.jobId]);
        expect(await claim()).to.deep.equal([]);
        for (const job of [giant, unique]) {
          expect(await typesOf(job?.jobId)).to.deep.equal(['JOB_SUBMITTED', 'JOB_UNSCHEDULABLE']);
        }
        await stage.engine.capacity.set({ total: 102 }, caller);
        expect(await claim({ limit: 5 })).to.deep.equal([giant?.jobId, unique?.jobId]);
      });
    }

    it('fills its limit from between jobs that cost too much', async () => {
      const jobs = await submitted(
        stage.engine,
        ...Array.from({ length: 12 }, (_, i) => ({ cost_units: i % 2 === 0 ? 101 : 1 })),
      );
      const ids = jobs.map(({ jobId }) => jobId);
      const [first, second] = await Promise.all([claim({ limit: 4 }), claim({ limit: 4 })]);
      expect([...(first ?? []), ...(second ?? [])]).to.deep.equal(ids.filter((_, i) => i % 2 === 1));
    });

    it('compares the cost with the stored total, not with free or usable units', async () => {
      const [job] = await submitted(stage.engine, { cost_units: 150 });
      await stage.engine.capacity.set({ total: 150, busy_rating: 9 }, caller);
      expect(await claim()).to.deep.equal([job?.jobId]);
    });

    it('claims jobs while the total capacity is zero, and parks none', async () => {
      const [job] = await submitted(stage.engine, {});
      await stage.engine.capacity.set({ total: 0 }, caller);
      expect(await claim()).to.deep.equal([job?.jobId]);
      expect(await typesOf(job?.jobId)).to.deep.equal(['JOB_SUBMITTED', 'JOB_CLAIMED']);
    });

    it('parks at most 2,000 jobs per claim, and the next claim parks the rest', async () => {
      const giants = Array.from({ length: 2_500 }, () =>
        draft({ addon_id: 'a', job_type: 't', cost_units: 101 }, false, stage.engine.settings),
      );
      await stage.engine.jobs.submitMany(giants, caller);
      const [small] = await submitted(stage.engine, {});
      const parked = async () => {
        const [row] = await stage.store.database.query<{ n: number }>(
          "select count(*)::int as n from live_jobs where check_at = 'infinity'",
          [],
        );
        return row?.n;
      };
      expect(await claim()).to.deep.equal([]);
      expect(await parked()).to.equal(2_000);
      expect(await claim()).to.deep.equal([small?.jobId]);
      expect(await parked()).to.equal(2_500);
    });
  });
});
