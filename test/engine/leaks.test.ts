import { expect } from 'chai';
import type { EngineContext } from '../../src/engine/context/engine-context.ts';
import { Claimer } from '../../src/engine/jobs/claimer.ts';
import { KnownWorkers } from '../../src/engine/workers/known-workers.ts';
import { Batcher } from '../../src/lib/async/batcher.ts';
import { noMarks } from '../../src/store/sql/queue/heads.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import { onEveryEngine, type TestDatabase } from '../support/engines.ts';
import { caller, engineOn, submitted, type TestedEngine } from '../support/jobs.ts';

/** Lets callbacks of settled promises run. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A claimer on a database that answers nothing before `release`, and then no rows. */
function held() {
  const open = Promise.withResolvers<void>();
  const asked: string[] = [];
  const query = async (text: string) => {
    asked.push(text);
    await open.promise;
    return [];
  };
  const database = { query, transaction: (work: (sql: object) => unknown) => work({ query }) };
  const context = {
    database,
    settings: { claimTtlS: 60, capacityTotal: 100 },
    outageMonitor: { ensureFresh: () => Promise.resolve() },
    lowWaterMarks: noMarks,
    publisher: { publish: () => {} },
    workers: new KnownWorkers(),
    metrics: new Metrics(),
    quotaBook: { unitTenantsOf: () => [] },
  };
  const claimer = new Claimer(context as unknown as EngineContext);
  return { claimer, asked, release: () => open.resolve() };
}

const outcome = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    (answer) => answer,
    (error: { code?: unknown }) => error.code,
  );

const count = 1_000;
const typed = (i: number) => ({ worker_id: 'w', accept_job_types: [`type-${i}`] });

describe('resources of abandoned calls', () => {
  it('keeps nothing in the claimer after 1,000 claims abandoned in flight', async () => {
    const { claimer, asked, release } = held();
    const gone = new AbortController();
    const claims = Array.from({ length: count }, (_, i) =>
      outcome(claimer.claim(typed(i), { ...caller, signal: gone.signal })),
    );
    await settled();
    expect(asked).to.have.length(count);
    expect(claimer.kinds).to.equal(count);
    gone.abort();
    expect(new Set(await Promise.all(claims))).to.deep.equal(new Set(['canceled']));
    release();
    await settled();
    await settled();
    expect(claimer.kinds).to.equal(0);
    await claimer.close();
  });

  it('keeps nothing in the claimer after 1,000 claims abandoned before they were sent', async () => {
    const { claimer, asked, release } = held();
    const claims = Array.from({ length: count }, (_, i) => {
      const gone = new AbortController();
      const claim = outcome(claimer.claim(typed(i), { ...caller, signal: gone.signal }));
      gone.abort();
      return claim;
    });
    expect(new Set(await Promise.all(claims))).to.deep.equal(new Set(['canceled']));
    await settled();
    await settled();
    expect(asked).to.deep.equal([]);
    expect(claimer.kinds).to.equal(0);
    release();
    await claimer.close();
  });

  it('keeps nothing in the claimer after claims that were canceled before the call', async () => {
    const { claimer, release } = held();
    const signal = AbortSignal.abort();
    for (let i = 0; i < count; i++) {
      expect(await outcome(claimer.claim(typed(i), { ...caller, signal }))).to.equal('canceled');
    }
    await settled();
    expect(claimer.kinds).to.equal(0);
    release();
    await claimer.close();
  });

  it('keeps nothing in the claimer after answered claims, and batches claims of one kind', async () => {
    const { claimer, asked, release } = held();
    const claims = [0, 1, 1, 0, 1].map((kind) => claimer.claim(typed(kind), caller));
    await settled();
    expect([claimer.kinds, asked.length]).to.deep.equal([2, 2]);
    release();
    expect(await Promise.all(claims)).to.deep.equal([[], [], [], [], []]);
    await settled();
    await settled();
    expect(claimer.kinds).to.equal(0);
    await claimer.close();
  });

  it('closes a batcher whose only call was abandoned before it was sent', async () => {
    const batcher = new Batcher<number, number>({
      flush: () => Promise.reject(new Error('nothing was to be done')),
      sizeMax: 10,
      waitingMax: 10,
    });
    const gone = new AbortController();
    const call = outcome(batcher.run(1, gone.signal));
    gone.abort();
    await batcher.close();
    expect(await call).to.equal('canceled');
    expect(batcher.idle).to.equal(true);
    await batcher.close();
  }).timeout(3_000);

  it('closes a batcher whose waiting calls were abandoned', async () => {
    const open = Promise.withResolvers<void>();
    const done: number[] = [];
    const batcher = new Batcher<number, number>({
      flush: async (calls) => {
        await open.promise;
        done.push(...calls);
        return calls;
      },
      sizeMax: 10,
      waitingMax: 10,
    });
    const gone = new AbortController();
    const first = batcher.run(1);
    await settled();
    const others = [2, 3].map((call) => outcome(batcher.run(call, gone.signal)));
    const closing = batcher.close();
    gone.abort();
    open.resolve();
    await closing;
    expect(await Promise.all([first, ...others])).to.deep.equal([1, 'canceled', 'canceled']);
    expect(done).to.deep.equal([1]);
  }).timeout(3_000);

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

    it('grants a job to a later claim of the same kind as abandoned ones', async () => {
      for (let i = 0; i < 50; i++) {
        const gone = new AbortController();
        const claim = outcome(engine.jobs.claim(typed(i), { ...caller, signal: gone.signal }));
        if (i % 2 === 0) await settled();
        gone.abort();
        await claim;
      }
      const [job] = await submitted(engine, { job_type: 'type-7' });
      const claimed = await engine.jobs.claim(typed(7), caller);
      expect(claimed.map(({ jobId }) => jobId)).to.deep.equal([job?.jobId]);
    });
  });
});
