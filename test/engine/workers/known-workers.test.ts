/** What a server remembers of workers, and its bounds. */
import { expect } from 'chai';
import { limits } from '../../../src/domain/limits.ts';
import type { ClaimFilter } from '../../../src/domain/queue/claim-filter.ts';
import { requestClassOf } from '../../../src/domain/queue/claim-filter.ts';
import { workerGoneMs } from '../../../src/domain/workers/worker.ts';
import { asksOf, KnownWorkers } from '../../../src/engine/workers/known-workers.ts';
import { anyJob } from '../../support/jobs.ts';

describe('KnownWorkers', () => {
  let now: number;
  let known: KnownWorkers;
  beforeEach(() => {
    now = 1_000;
    known = new KnownWorkers(() => now);
  });

  const asks = (workerId: string, more: Partial<ClaimFilter> = {}, mayWait = false) => {
    const filter = { ...anyJob, ...more };
    return known.asks({ workerId, peer: 'p', filter, kind: requestClassOf(filter, null), mayWait });
  };
  const names = () => [...known.fresh()].map(({ workerId }) => workerId);
  const only = () => [...known.fresh()][0] ?? expect.fail('no worker is known');

  it('keeps a bounded number of workers, however many names appear in calls (B11)', () => {
    for (let i = 0; i < 1_000_000; i++) known.heard(`worker-${i}`, 'p');
    expect(known.size).to.equal(limits.workersListed);
    for (let i = 0; i < 2 * limits.workersListed; i++) {
      known.open('WORK_STREAM', 'p', () => []).heard(`streaming-${i}`);
    }
    expect(known.size).to.equal(2 * limits.workersListed);
  });

  it('accepts new workers once others have expired', () => {
    for (let i = 0; i < limits.workersListed; i++) known.heard(`worker-${i}`, 'p');
    known.heard('late', 'p');
    expect(names()).to.not.include('late');
    now += workerGoneMs;
    expect(names()).to.deep.equal([]);
    known.heard('late', 'p');
    expect(names()).to.deep.equal(['late']);
  });

  it("keeps the latest few kinds of a worker's requests, and reports that there are more", () => {
    for (let i = 0; i < 100; i++) {
      now++;
      asks('w', { jobTypes: [`type-${i}`] });
    }
    const told = asksOf(only(), now);
    expect(told.asksCut).to.equal(true);
    expect(told.asks).to.have.length(limits.workerCalledAsks);
    expect(told.asks.map(({ jobTypes }) => jobTypes?.[0])).to.include('type-99');
    expect(asksOf(only(), now).asksCut, 'once it asks for few').to.equal(false);
  });

  it("keeps a bounded part of a kind's names, and reports that it was cut", () => {
    const jobTypes = Array.from({ length: limits.choices }, (_, i) => `${i}`.padEnd(limits.nameChars, 'x'));
    asks('w', { jobTypes });
    asks('w', { jobTypes });
    const { asks: told } = asksOf(only(), now);
    expect(told).to.have.length(1);
    expect(told[0]?.isCut).to.equal(true);
    expect(told[0]?.jobTypes).to.deep.equal(jobTypes.slice(0, limits.workerAskChars / limits.nameChars));
  });

  it("counts a worker's waiting calls until they are answered", () => {
    const answered = [asks('w', {}, true), asks('w', {}, true)];
    expect(asksOf(only(), now).asks.map(({ jobs }) => jobs)).to.deep.equal([2]);
    now += 2 * workerGoneMs;
    expect(names(), 'while it waits').to.deep.equal(['w']);
    for (const one of answered) one?.();
    expect(asksOf(only(), now).asks.map(({ jobs }) => jobs)).to.deep.equal([0]);
    now += workerGoneMs;
    expect(names()).to.deep.equal([]);
  });

  it('keeps a worker as long as its stream is open', () => {
    const stream = known.open('WORK_STREAM', 'p', () => [{ filter: anyJob, credit: 3 }]);
    stream.heard('w');
    now += 10 * workerGoneMs;
    expect(asksOf(only(), now).asks.map(({ jobs }) => jobs)).to.deep.equal([3]);
    stream.close();
    expect(names()).to.deep.equal([]);
    stream.heard('w');
    expect(names(), 'after its end').to.deep.equal([]);
  });

  it('keeps a worker with one open stream, or with a recent call', () => {
    const first = known.open('WORK_STREAM', 'p', () => []);
    const second = known.open('HEARTBEAT_STREAM', 'p', () => []);
    first.heard('w');
    second.heard('w');
    first.close();
    expect(names()).to.deep.equal(['w']);
    asks('w');
    second.close();
    expect(names()).to.deep.equal(['w']);
  });

  it('follows a stream that several workers use', () => {
    const stream = known.open('HEARTBEAT_STREAM', 'p', () => []);
    for (const workerId of ['a', 'b', 'a', 'b']) stream.heard(workerId);
    const [a, b] = [...known.fresh()];
    expect([a?.streams.size, b?.streams.size]).to.deep.equal([0, 1]);
    now += workerGoneMs;
    stream.heard('b');
    expect(names()).to.deep.equal(['b']);
  });
});
