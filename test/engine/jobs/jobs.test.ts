import { expect } from 'chai';
import { draft } from '../../../src/engine/jobs/submitter.ts';
import { ConnectionLostError } from '../../../src/store/connection/sql.ts';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { failure } from '../../support/failure.ts';
import { caller, engineOn, letTimePass, submitted, type TestedEngine } from '../../support/jobs.ts';

describe('jobs', () => {
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

    const drafted = (command: object, returnExisting = false) =>
      draft({ addon_id: 'a', job_type: 't', cost_units: 1, ...command }, returnExisting, engine.settings);

    it('returns a submitted job without reading it, equal to the stored one', async () => {
      const [job] = await submitted(engine, {
        payload: { text: 'é "quoted" \\ back\nline {curly}, NULL', list: [1, null, true, { a: [] }] },
        constraints: { gpu_required: true, colour_heavy: false },
        tags: ['one', 'with "quotes", commas and {braces}', 'NULL'],
        client_request_id: 'key',
        max_runtime_s: 60,
        priority: 'URGENT',
        stream: 'mail',
      });
      expect((await engine.jobs.get(job?.jobId ?? '', caller)).job).to.deep.equal(job);
      expect(job).to.include({ maxAttempts: 3, retryBackoffS: 2, stream: 'mail', priority: 'URGENT' });
    });

    it('creates one job for 50 concurrent submissions with one client_request_id', async () => {
      const keyed = () => drafted({ client_request_id: 'once' }, true);
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => engine.jobs.submit(keyed(), caller)),
      );
      expect(new Set(answers.map(({ job }) => job.jobId)).size).to.equal(1);
      expect(answers.filter(({ existing }) => !existing)).to.have.length(1);
      const refused = await failure(engine.jobs.submit(drafted({ client_request_id: 'once' }), caller));
      expect(refused).to.include({ code: 'duplicate_request', jobId: answers[0]?.job.jobId });
      const elsewhere = drafted({ client_request_id: 'once', addon_id: 'b' });
      expect((await engine.jobs.submit(elsewhere, caller)).existing).to.equal(false);
    });

    it('answers each job of a batch separately, and a duplicate affects no other', async () => {
      const batch = [drafted({ client_request_id: 'k' }), drafted({}), drafted({ client_request_id: 'k' })];
      const [first, second, third] = await engine.jobs.submitMany(batch, caller);
      expect(first).to.include({ existing: false });
      expect(second).to.include({ existing: false });
      expect(third).to.include({ code: 'duplicate_request' });
      expect(third?.jobId).to.be.a('string').and.equal(first?.jobId);
    });

    it('publishes committed jobs also when the wait for the standby fails (V2)', async () => {
      const lost = new ConnectionLostError('the standby cannot be asked');
      const unconfirmed = new Proxy(store.database, {
        get(target, name) {
          if (name === 'awaitStandby') return () => Promise.reject(lost);
          const value = Reflect.get(target, name);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
      const other = engineOn(unconfirmed);
      let published = 0;
      other.services.notifier.onWork(({ jobs }) => {
        published += jobs.get('') ?? 0;
      });
      await submitted(other, { client_request_id: 'k' });
      expect(published).to.equal(1);
      const batch = [drafted({ client_request_id: 'k' }), drafted({ job_type: 'new' })];
      expect(await failure(other.jobs.submitMany(batch, caller))).to.equal(lost);
      expect(published).to.equal(2);
      let commits = 0;
      other.services.notifier.onCommit(() => {
        commits += 1;
      });
      const claim = other.jobs.claim({ worker_id: 'w', request_id: 'r' }, caller);
      expect(await failure(claim)).to.equal(lost);
      expect(commits).to.equal(1);
      await other.stop();
    });

    it('repeats a claim to the same request_id while the claim lasts', async () => {
      await submitted(engine, {}, {}, {}, {});
      const ask = () => engine.jobs.claim({ worker_id: 'w', request_id: 'r1', limit: 2 }, caller);
      const [first, again] = await Promise.all([ask(), ask()]);
      const later = await ask();
      const ids = first.map(({ jobId }) => jobId);
      expect(ids).to.have.length(2);
      for (const answer of [again, later]) expect(answer.map(({ jobId }) => jobId)).to.deep.equal(ids);
      const other = await engine.jobs.claim({ worker_id: 'w2', request_id: 'r1', limit: 2 }, caller);
      expect(other.map(({ jobId }) => jobId)).to.not.include.members(ids);
      await letTimePass(store.database, 61_000);
      await engine.services.reaper.runOnce();
      expect(await ask()).to.have.length(2);
      const types = (await engine.jobs.events(ids[0] ?? '', {}, caller)).items.map(({ type }) => type);
      expect(types).to.deep.equal(['JOB_SUBMITTED', 'JOB_CLAIMED', 'CLAIM_EXPIRED', 'JOB_CLAIMED']);
    });

    it('does not give jobs of a stream to a claim that names no stream', async () => {
      await submitted(engine, { stream: 'mail' });
      expect(await engine.jobs.claim({ worker_id: 'w', limit: 10 }, caller)).to.deep.equal([]);
    });

    it('claims by type, cost, submitter and capability', async () => {
      const [plain, typed, gpu, heavy] = await submitted(
        engine,
        { cost_units: 50 },
        { job_type: 'render' },
        { constraints: { gpu_required: true } },
        { constraints: { cpu_heavy: true }, addon_id: 'b' },
      );
      const claim = async (ask: object) =>
        (await engine.jobs.claim({ worker_id: 'w', limit: 10, ...ask }, caller)).map(({ jobId }) => jobId);
      expect(await claim({ accept_job_types: ['render', 'other'] })).to.deep.equal([typed?.jobId]);
      expect(
        await claim({ max_cost_units: 49, constraints_capabilities: { cpu_heavy: false } }),
      ).to.deep.equal([]);
      expect(await claim({ addon_id: 'b' })).to.deep.equal([heavy?.jobId]);
      expect(await claim({ constraints_capabilities: { gpu_available: true } })).to.deep.equal([
        plain?.jobId,
        gpu?.jobId,
      ]);
    });

    it('applies calls in their order, also within one batch', async () => {
      const [job] = await submitted(engine, {});
      const id = job?.jobId ?? '';
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      const calls = [
        engine.jobs.updateStatus(id, { state: 'PREPARING', note: 'one' }, caller),
        engine.jobs.updateStatus(id, { state: 'LEASE_PENDING', progress: 0.5 }, caller),
        engine.jobs.updateStatus(id, { state: 'PREPARING' }, caller),
        engine.jobs.cancel(id, { reason: 'enough' }, caller),
        engine.jobs.updateStatus(id, { state: 'QUEUED' }, caller),
      ];
      const codes = (await Promise.allSettled(calls)).map((result) =>
        result.status === 'fulfilled' ? 'ok' : result.reason.code,
      );
      expect(codes).to.deep.equal(['ok', 'ok', 'illegal_transition', 'ok', 'illegal_transition']);
      const found = await engine.jobs.get(id, caller);
      expect(found.job).to.include({ state: 'CANCELED', note: 'one', progress: 0.5, claimedBy: 'w' });
      const types = (await engine.jobs.events(id, {}, caller)).items.map(({ type }) => type);
      expect(types.slice(2)).to.deep.equal(['JOB_PREPARING', 'JOB_LEASE_PENDING', 'JOB_CANCELED']);
    });

    it('rejects updates of an expired claim before the reaper ends it', async () => {
      const [job] = await submitted(engine, {});
      await engine.jobs.claim({ worker_id: 'w' }, caller);
      await letTimePass(store.database, 61_000);
      const late = await failure(engine.jobs.updateStatus(job?.jobId ?? '', { state: 'PREPARING' }, caller));
      expect(late).to.have.property('code', 'job_not_claimed');
    });

    it('returns a retried job to its old position and keeps the old result in its history', async () => {
      const [first] = await submitted(engine, {}, {});
      const id = first?.jobId ?? '';
      await engine.jobs.cancel(id, { reason: 'oops' }, caller);
      const job = await engine.jobs.retry(id, { reason: 'after all', requested_by: 'ops' }, caller);
      expect(job).to.include({ state: 'QUEUED', attempts: 0 });
      expect(await engine.jobs.claim({ worker_id: 'w' }, caller)).to.have.nested.property('[0].jobId', id);
      const retried = (await engine.jobs.events(id, {}, caller)).items.find(
        ({ type }) => type === 'JOB_RETRIED',
      );
      expect(retried?.data).to.include({ by: 'ops', from: 'CANCELED', to: 'QUEUED', reason: 'after all' });
      expect(retried?.data.previous).to.include({ status: 'CANCELED' });
      expect(await failure(engine.jobs.retry(id, {}, caller))).to.have.property('code', 'illegal_transition');
    });

    if (kind.name === 'postgresql') {
      it('claims once for one request_id that two servers receive at the same time', async () => {
        await submitted(engine, ...Array.from({ length: 40 }, () => ({})));
        const other = await openDatabase(store.options);
        try {
          const second = engineOn(other);
          for (let round = 0; round < 10; round++) {
            const ask = (one: TestedEngine) =>
              one.jobs.claim({ worker_id: 'w', request_id: `r${round}` }, caller);
            const [here, there] = await Promise.all([ask(engine), ask(second)]);
            expect(here.map(({ jobId }) => jobId)).to.deep.equal(there.map(({ jobId }) => jobId));
          }
        } finally {
          await other.close();
        }
      });
    }
  });
});
