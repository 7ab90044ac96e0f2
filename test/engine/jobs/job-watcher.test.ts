import { expect } from 'chai';
import type { Caller } from '../../../src/engine/context/engine-context.ts';
import type { JobNews } from '../../../src/engine/jobs/job-queries.ts';
import type { Database } from '../../../src/store/database.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';

describe('watching a job', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    beforeEach(async () => {
      store = await kind.open();
      engine = engineOn(store.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    /** Claims a job and watches it. */
    async function followed() {
      const [job] = await submitted(engine, {});
      const jobId = job?.jobId ?? '';
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      // A watch without a message fails after this time instead of waiting forever.
      const patient: Caller = { ...caller, signal: AbortSignal.timeout(5_000) };
      const stream = engine.jobs.watch(jobId, null, patient);
      const next = async (): Promise<JobNews> => {
        const { value, done } = await stream.next();
        if (done) throw new Error('the stream has ended');
        return value;
      };
      const first = await next();
      expect(first.job).to.include({ state: 'CLAIMED', progress: null });
      return { jobId, stream, next };
    }

    it('reports progress, although progress is no event', async () => {
      const { jobId, stream, next } = await followed();
      const news = next();
      await engine.jobs.updateStatus(jobId, { state: 'CLAIMED', progress: 0.5 }, caller);
      const { job, events } = await news;
      expect(job.progress).to.equal(0.5);
      expect(events).to.deep.equal([]);
      const more = next();
      await engine.jobs.updateStatus(jobId, { state: 'CLAIMED', progress: 0.75 }, caller);
      expect((await more).job.progress).to.equal(0.75);
      await stream.return(undefined);
    });

    it('reports a note', async () => {
      const { jobId, stream, next } = await followed();
      const news = next();
      await engine.jobs.updateStatus(jobId, { state: 'CLAIMED', note: 'halfway' }, caller);
      expect((await news).job.note).to.equal('halfway');
      await stream.return(undefined);
    });

    it('reports the latest progress once when several updates preceded the read', async () => {
      const { jobId, stream, next } = await followed();
      for (const progress of [0.1, 0.2, 0.3]) {
        await engine.jobs.updateStatus(jobId, { state: 'CLAIMED', progress }, caller);
      }
      expect((await next()).job.progress).to.equal(0.3);
      const last = next();
      await engine.jobs.cancel(jobId, {}, caller);
      expect((await last).job.state).to.equal('CANCELED');
      expect((await stream.next()).done).to.equal(true);
    });

    it('reports progress that another server recorded', async () => {
      const { jobId, stream, next } = await followed();
      const other = engineOn(store.database);
      const news = next();
      await other.jobs.updateStatus(jobId, { state: 'CLAIMED', progress: 0.5 }, caller);
      await other.stop();
      // This round recovers lost notifications.
      await engine.services.notifier.runOnce();
      expect((await news).job.progress).to.equal(0.5);
      await stream.return(undefined);
    });

    it('never reports a change with the job as it was before the change', async () => {
      const [job] = await submitted(engine, {});
      const jobId = job?.jobId ?? '';
      let looks = 0;
      // A client cancels the job between the second read of the job and that of its events.
      const betweenReads: Database['query'] = async (text, params, signal) => {
        if (/from "?job_events"?/.test(text) && ++looks === 2) await engine.jobs.cancel(jobId, {}, caller);
        return store.database.query<never>(text, params, signal);
      };
      const database = new Proxy(store.database, {
        get: (target, name) => {
          if (name === 'query') return betweenReads;
          const value = Reflect.get(target, name);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
      const other = engineOn(database);
      const told: [string, string[]][] = [];
      const sweep = setInterval(() => void other.services.notifier.runOnce(), 10);
      try {
        const patient: Caller = { ...caller, signal: AbortSignal.timeout(5_000) };
        for await (const news of other.jobs.watch(jobId, null, patient))
          told.push([news.job.state, news.events.map(({ type }) => type)]);
      } finally {
        clearInterval(sweep);
        await other.stop();
      }
      expect(told).to.deep.equal([
        ['QUEUED', ['JOB_SUBMITTED']],
        ['CANCELED', ['JOB_CANCELED']],
      ]);
    });

    it('sends nothing when nothing has changed', async () => {
      const { jobId, stream, next } = await followed();
      const news = next();
      for (let round = 0; round < 5; round++) {
        await engine.services.notifier.runOnce();
        await engine.jobs.get(jobId, caller);
        await engine.jobs.events(jobId, {}, caller);
      }
      await engine.jobs.cancel(jobId, {}, caller);
      const { job, events } = await news;
      expect(job.state).to.equal('CANCELED');
      expect(events.map(({ type }) => type)).to.deep.equal(['JOB_CANCELED']);
      expect((await stream.next()).done).to.equal(true);
    });
  });
});
