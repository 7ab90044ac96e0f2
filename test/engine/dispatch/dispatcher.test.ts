/** The guarantee: claims and releases that arrive together share a transaction. */
import { expect } from 'chai';
import type { AcquireCall, AcquireResult, Answer } from '../../../src/engine/dispatch/acquire-call.ts';
import type { EndOutcome } from '../../../src/engine/dispatch/lease-endings.ts';
import type { Sql } from '../../../src/store/connection/sql.ts';
import type { Database } from '../../../src/store/database.ts';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { anyJob, caller, engineOn, submitted, type TestedEngine } from '../../support/jobs.ts';
import { acquire, acquired, codeOf, fetching, Holder, releaseFor } from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

/** Wraps the database: counts transactions, and starts none while the gate is closed. */
function gated(database: Database) {
  const gate = { transactions: 0, open: Promise.resolve() };
  const transaction = async <T>(work: (sql: Sql) => Promise<T>, signal?: AbortSignal): Promise<T> => {
    gate.transactions++;
    await gate.open;
    return database.transaction(work, signal);
  };
  const proxy = new Proxy(database, {
    get: (target, name) => {
      if (name === 'transaction') return transaction;
      const value = Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return { database: proxy, gate };
}

const calling = (workerId: string, jobType?: string, count = 1, isExpected = true): AcquireCall => ({
  workerId,
  holder: null,
  requestId: null,
  count,
  isStreamed: count > 1,
  isExpected,
  ttlS: null,
  requestClass: `of ${jobType}`,
  filter: { ...anyJob, jobTypes: jobType === undefined ? null : [jobType] },
});

const jobsOf = (answer: Answer): string[] =>
  answer.kind === 'granted' ? answer.grants.map(({ job }) => job.jobId) : [answer.reason];

const requeuedOf = (answer: EndOutcome | Error): boolean | string =>
  answer instanceof Error ? answer.message : answer.requeued;

const jobOf = (answer: Answer): string => jobsOf(answer).join();

describe('Dispatcher', () => {
  onEveryEngine((kind) => {
    let store: TestDatabase;
    let engine: TestedEngine;
    let gate: ReturnType<typeof gated>['gate'];
    beforeEach(async () => {
      store = await kind.open();
      const held = gated(store.database);
      gate = held.gate;
      engine = engineOn(held.database);
    });
    afterEach(async () => {
      await engine.stop();
      await store.close();
    });

    /** Repeats the call as long as the dispatcher asks for it. */
    const claim = async (workerId: string, jobType?: string, count?: number): Promise<Answer> => {
      for (let call = calling(workerId, jobType, count); ; ) {
        const answer = await engine.services.dispatcher.acquire(call, undefined);
        if (answer.kind !== 'again') return answer;
        call = answer.call;
      }
    };

    /**
     * Starts a transaction with `first`, sends the rest while it runs, and resolves when every call has its
     * answer.
     */
    async function together<T>(first: () => Promise<unknown>, rest: readonly (() => Promise<T>)[]) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const before = gate.transactions;
      gate.open = promise;
      const begun = first();
      await eventually('the first is under way', async () => gate.transactions > before || undefined);
      const answers = rest.map((call) => call());
      await eventually(
        'all others are at the desk',
        async () => engine.services.dispatcher.waiting === rest.length || undefined,
      );
      resolve();
      await begun;
      return { answers: await Promise.all(answers), transactions: gate.transactions - before };
    }

    it('answers completed and rejected releases of a batch while the dispatcher closes', async () => {
      await submitted(engine, {}, {});
      const [done, stolen] = [await acquired(engine, 'v'), await acquired(engine, 'w')];
      let open = () => {};
      gate.open = new Promise((resolve) => {
        open = resolve;
      });
      const begun = gate.transactions;
      const ending = engine.leases.endEach([releaseFor(done), releaseFor(stolen, { workerId: 'x' })]);
      await eventually('it is under way', async () => (gate.transactions > begun ? true : undefined));
      const closed = engine.services.dispatcher.close();
      open();
      const [first, second] = await ending;
      expect(first).to.deep.equal({ requeued: false, deadLettered: false });
      expect(await codeOf(second as Promise<unknown>)).to.equal('worker_mismatch');
      await closed;
    });

    it('applies the first release of a lease in a frame and rejects the later ones', async () => {
      await submitted(engine, {}, {});
      const [failed, done] = [await acquired(engine, 'v'), await acquired(engine, 'w')];
      const failing = { status: 'FAILED', error: 'no' } as const;
      const answers = await engine.leases.endEach([
        releaseFor(failed, failing),
        releaseFor(failed),
        releaseFor(done),
        releaseFor(done, failing),
      ]);
      expect(answers.map((answer) => answer instanceof Error)).to.deep.equal([false, true, false, true]);
    });

    it('ends successful and failed leases of a frame in one transaction', async () => {
      await submitted(engine, {}, {});
      const [done, failed] = [await acquired(engine, 'v'), await acquired(engine, 'w')];
      const before = gate.transactions;
      await engine.leases.endEach([releaseFor(done), releaseFor(failed, { status: 'FAILED', error: 'no' })]);
      expect(gate.transactions - before).to.equal(1);
    });

    it('answers 100 repeated releases of a frame in two transactions', async () => {
      await submitted(engine, ...Array.from({ length: 100 }, () => ({})));
      const releases = (await fetching(engine, 100)).map((grant) => releaseFor(grant));
      const before = gate.transactions;
      const first = await engine.leases.endEach(releases);
      expect(gate.transactions - before).to.equal(1);
      const repeated = await Promise.all(await engine.leases.endEach(releases));
      expect(repeated.map(requeuedOf)).to.deep.equal((await Promise.all(first)).map(requeuedOf));
      expect(gate.transactions - before).to.equal(3);
    });

    it('tries the fast path for one in 17 grants of unique jobs', async () => {
      const grants = 2 * 17;
      await submitted(engine, ...Array.from({ length: grants }, () => ({ unique: true })));
      const before = gate.transactions;
      for (let i = 0; i < grants; i++) expect((await claim(`w${i}`)).kind).to.equal('granted');
      expect(gate.transactions - before).to.equal(grants + 2);
    });

    it('grants the units that releases free in the same transaction, at full capacity', async () => {
      await submitted(engine, ...Array.from({ length: 20 }, () => ({})));
      await engine.capacity.set({ total: 10 }, caller);
      const grants = await Promise.all(Array.from({ length: 10 }, (_, i) => acquired(engine, `w${i}`)));
      const { answers, transactions } = await together(
        () => claim('in vain'),
        grants.flatMap((grant, i) => [
          () => claim(`v${i}`).then(jobOf),
          () => engine.leases.release(releaseFor(grant), caller).then(({ job }) => job.jobId),
        ]),
      );
      expect(new Set(answers).size, 'released jobs and other jobs that were granted').to.equal(20);
      // Three transactions: the first claim, all other calls, and the one that finds the first claim's denial
      // reason.
      expect(transactions).to.equal(3);
      expect((await engine.capacity.get(caller)).used).to.equal(10);
    });

    it('denies a request without a transaction if a probe finds no job and no units', async () => {
      const { dispatcher } = engine.services;
      const unexpected = calling('w', undefined, 1, false);
      const before = gate.transactions;
      const noJobs = await dispatcher.acquire(unexpected, undefined);
      expect(noJobs).to.include({ reason: 'No jobs available' });
      await engine.capacity.set({ busy_rating: 10 }, caller);
      const settingCapacity = gate.transactions - before;
      expect(await dispatcher.acquire(unexpected, undefined)).to.include({
        reason: 'No capacity (busy=10, usable=0, leased=0)',
      });
      expect(gate.transactions - before).to.equal(settingCapacity);
      await claim('w');
      expect(gate.transactions - before, 'transactions of an expected request').to.be.above(settingCapacity);
    });

    it('grants a requeued job to a claim of the same transaction', async () => {
      await submitted(engine, { max_attempts: 2, retry_backoff_s: 0 });
      const grant = await acquired(engine);
      const handBack = releaseFor(grant, { status: 'FAILED', retryable: true });
      const { answers, transactions } = await together(
        () => claim('in vain'),
        [
          () => claim('v').then(jobOf),
          () => engine.leases.release(handBack, caller).then(({ job }) => job.jobId),
        ],
      );
      expect(answers).to.deep.equal([grant.job.jobId, grant.job.jobId]);
      expect(transactions).to.equal(2);
      const events = (await engine.jobs.events(grant.job.jobId, {}, caller)).items.map(({ type }) => type);
      expect(events.slice(-3)).to.deep.equal(['LEASE_RELEASED', 'JOB_REQUEUED', 'LEASE_GRANTED']);
    });

    it('serves 40 request classes in several transactions, and releases in the first', async () => {
      const types = Array.from({ length: 40 }, (_, i) => `t${i}`);
      await submitted(engine, {}, ...types.map((job_type) => ({ job_type })));
      const held = await acquired(engine, 'w', { accept_job_types: ['t'] });
      const order: string[] = [];
      const noted = async <T>(what: string, work: Promise<T>): Promise<T> => {
        const answer = await work;
        order.push(what);
        return answer;
      };
      const { answers } = await together(
        () => claim('in vain', 'nothing'),
        [
          ...types.map((type) => () => noted('claim', claim('w', type).then(jobOf))),
          () =>
            noted(
              'release',
              engine.leases.release(releaseFor(held), caller).then(({ job }) => job.jobId),
            ),
        ],
      );
      expect(new Set(answers).size).to.equal(41);
      expect(order.indexOf('release'), 'claims that were answered before the release').to.be.at.most(8);
    });

    it('grants each caller a first job before any second one, and no more jobs than exist', async () => {
      const jobs = await submitted(engine, ...Array.from({ length: 8 }, () => ({})));
      const ids = jobs.map(({ jobId }) => jobId);
      const { answers } = await together(
        () => claim('none', 'nothing of this type'),
        [() => claim('a', undefined, 4), () => claim('b'), () => claim('c', undefined, 100)],
      );
      const [a, b, c] = answers.map(jobsOf);
      expect(a).to.deep.equal([ids[0], ids[3], ids[5], ids[7]].slice(0, 4));
      expect(b).to.deep.equal([ids[1]]);
      expect(c).to.deep.equal([ids[2], ids[4], ids[6]]);
      expect(jobOf(await claim('d', undefined, 2))).to.equal('No jobs available');
    });

    it('rejects calls after closing, and answers all earlier ones', async () => {
      await submitted(engine, ...Array.from({ length: 5 }, () => ({})));
      const grants = await Promise.all(Array.from({ length: 5 }, (_, i) => acquired(engine, `w${i}`)));
      const released = grants.map((grant) => engine.leases.release(releaseFor(grant), caller));
      await engine.stop();
      for (const { job } of await Promise.all(released)) expect(job.state).to.equal('DONE');
      expect(await codeOf(acquire(engine, 'w'))).to.equal('unavailable');
      for (const grant of grants) {
        expect(await codeOf(engine.leases.release(releaseFor(grant), caller))).to.equal('unavailable');
      }
    });

    // The embedded database has one connection, so no other session can lock a row.
    if (kind.name !== 'postgresql') return;

    it('searches further with each repeated call, until it finds an unlocked job', async () => {
      const jobs = await submitted(engine, ...Array.from({ length: 201 }, () => ({})));
      const holder = await Holder.holdJobs(
        store,
        jobs.slice(0, 200).map(({ jobId }) => jobId),
      );
      const repeated: AcquireCall[] = [];
      let answer: AcquireResult = await engine.services.dispatcher.acquire(calling('w'), undefined);
      while (answer.kind === 'again' && repeated.length < 10) {
        repeated.push(answer.call);
        answer = await engine.services.dispatcher.acquire(answer.call, undefined);
      }
      await holder.letGo();
      expect(answer.kind === 'again' ? [] : jobsOf(answer)).to.deep.equal([jobs[200]?.jobId]);
      expect(repeated.map(({ window }) => window?.spare)).to.deep.equal([32, 128, 512]);
    });
  });
});
