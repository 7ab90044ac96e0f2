/**
 * The guarantee: order, bounds and pages of the job list follow the database's clock, in milliseconds as in
 * answers.
 */
import { expect } from 'chai';
import type { Job } from '../../../src/domain/jobs/job.ts';
import type { ListJobs } from '../../../src/domain/requests/scheduler.ts';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, submitted, submittedIds, type TestedEngine } from '../../support/jobs.ts';

const hourMs = 3_600_000;

/** Runs `work` in a process whose clock is wrong by `ms`. */
async function withClockOff<T>(ms: number, work: () => Promise<T>): Promise<T> {
  const { now } = Date;
  Date.now = () => now() + ms;
  try {
    return await work();
  } finally {
    Date.now = now;
  }
}

const iso = (ms: number) => new Date(ms).toISOString();
const idsOf = (jobs: readonly Job[]) => jobs.map(({ jobId }) => jobId);

onEveryEngine((kind) => {
  describe('the list of jobs', () => {
    let store: TestDatabase;
    let engine: TestedEngine;
    before(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    after(async () => {
      await engine.stop();
      await store.close();
    });

    const list = async (command: ListJobs) => engine.jobs.list(command, caller);

    /** Sets the creation time of a job, as if it had been submitted then. */
    const createdAt = (jobId: string, time: string) =>
      store.database.query('update jobs set created_at = $2::timestamptz where job_id = $1', [jobId, time]);

    it("orders and bounds the list by the database's clock, not the servers' (B7)", async () => {
      const addon_id = 'skewed';
      const jobs: Job[] = [];
      for (const offMs of [0, -hourMs, hourMs, 0, hourMs, -hourMs]) {
        const [job] = await withClockOff(offMs, () => submitted(engine, { addon_id }));
        if (job) jobs.push(job);
      }
      const newest = [...idsOf(jobs)].reverse();
      expect(idsOf((await list({ addon_id })).items)).to.deep.equal(newest);
      const [first, last] = [jobs[0], jobs.at(-1)];
      const bounds = {
        created_after: iso((first?.createdAtMs ?? 0) - 1),
        created_before: iso((last?.createdAtMs ?? 0) + 1),
      };
      expect(idsOf((await list({ addon_id, ...bounds })).items)).to.deep.equal(newest);
    });

    it('encodes the creation time in the id, to the microsecond (B7)', async () => {
      const [job] = await submitted(engine, { addon_id: 'ids' });
      const [row] = await store.database.query<{ us: string }>(
        'select (extract(epoch from created_at) * 1000000)::bigint::text as us from jobs where job_id = $1',
        [job?.jobId],
      );
      expect(job?.jobId).to.match(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      const digits = (job?.jobId ?? '').replaceAll('-', '');
      const us = Number.parseInt(digits.slice(0, 12), 16) * 1000 + Number.parseInt(digits.slice(13, 16), 16);
      expect(String(us)).to.equal(row?.us);
    });

    it('keeps the order of submission among jobs of one batch (B7)', async () => {
      const addon_id = 'batch';
      const drafts = Array.from({ length: 300 }, () =>
        draft({ addon_id, job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      const ids = await submittedIds(engine, drafts);
      const { items } = await list({ addon_id, limit: 200 });
      expect(idsOf(items)).to.deep.equal([...ids].reverse().slice(0, 200));
    });

    it('excludes the job whose created_at equals the bound (B8)', async () => {
      const addon_id = 'bounds';
      const [job] = await submitted(engine, { addon_id });
      // Replaces the microseconds of the clock, which answers truncate.
      const second = iso(job?.createdAtMs ?? 0).slice(0, 19);
      await createdAt(job?.jobId ?? '', `${second}.123456Z`);
      const [shown] = (await list({ addon_id })).items;
      expect(iso(shown?.createdAtMs ?? 0)).to.equal(`${second}.123Z`);
      const found = async (bound: ListJobs) => (await list({ addon_id, ...bound })).items.length;
      expect(await found({ created_after: `${second}.123Z` }), 'after itself').to.equal(0);
      expect(await found({ created_after: `${second}.122Z` }), 'after the millisecond before').to.equal(1);
      expect(await found({ created_before: `${second}.123Z` }), 'before itself').to.equal(0);
      expect(await found({ created_before: `${second}.124Z` }), 'before the millisecond after').to.equal(1);
    });

    it('neither loses nor repeats a job across pages while jobs arrive and end (B7)', async () => {
      const addon_id = 'pages';
      const drafts = Array.from({ length: 57 }, () =>
        draft({ addon_id, job_type: 't', cost_units: 1 }, false, engine.settings),
      );
      const ids = await submittedIds(engine, drafts);
      const seen: string[] = [];
      let cursor: string | null = null;
      do {
        const page: { items: Job[]; nextCursor: string | null } = await list({
          addon_id,
          limit: 10,
          ...(cursor === null ? {} : { cursor }),
        });
        seen.push(...idsOf(page.items));
        cursor = page.nextCursor;
        // A job that moves from the table of unfinished jobs to that of ended ones keeps its position.
        for (const jobId of [ids[seen.length - 1], ids[56 - seen.length]])
          if (jobId !== undefined) await engine.jobs.cancel(jobId, {}, caller);
        await submitted(engine, { addon_id });
      } while (cursor !== null);
      expect(seen).to.deep.equal([...ids].reverse());
    });
  });
});
