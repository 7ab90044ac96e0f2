import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import { Batcher, type BatcherOptions } from '../../../src/lib/async/batcher.ts';
import { failure } from '../../support/failure.ts';

/** A batcher whose batches end when the test says so. */
function held(options: Partial<BatcherOptions<number, string>> = {}) {
  const flights: {
    calls: readonly number[];
    signal: AbortSignal | undefined;
    land: () => void;
    crash: (e: Error) => void;
  }[] = [];
  const batcher = new Batcher<number, string>({
    flush: (calls, signal) =>
      new Promise((resolve, reject) => {
        const land = () => resolve(calls.map((call) => `did ${call}`));
        flights.push({ calls, signal, land, crash: reject });
      }),
    sizeMax: 100,
    waitingMax: 1_000,
    ...options,
  });
  return { batcher, flights };
}

/** Lets the callbacks of all settled promises run. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('Batcher', () => {
  it('runs a single call alone, at the end of the turn', async () => {
    const { batcher, flights } = held();
    const answer = batcher.run(1);
    await settled();
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1]]);
    flights[0]?.land();
    expect(await answer).to.equal('did 1');
  });

  it('runs calls that arrive in one turn together', async () => {
    const { batcher, flights } = held();
    const answers = [1, 2, 3].map((call) => batcher.run(call));
    await settled();
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1, 2, 3]]);
    flights[0]?.land();
    expect(await Promise.all(answers)).to.deep.equal(['did 1', 'did 2', 'did 3']);
  });

  it('collects calls that arrive while a batch runs into the next one, in order', async () => {
    const { batcher, flights } = held();
    const first = batcher.run(1);
    await settled();
    const later = [2, 3, 4].map((call) => batcher.run(call));
    await settled();
    expect(flights).to.have.length(1);
    flights[0]?.land();
    await first;
    await settled();
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1], [2, 3, 4]]);
    flights[1]?.land();
    expect(await Promise.all(later)).to.deep.equal(['did 2', 'did 3', 'did 4']);
  });

  it('limits the size and the weight of a batch, and runs a call above the limit alone', async () => {
    const { batcher, flights } = held({ sizeMax: 3, weigh: (call) => call, weightMax: 10 });
    const all = Promise.all([1, 1, 1, 1, 1, 50, 4, 4, 4].map((call) => batcher.run(call)));
    for (let i = 0; i < 5; i++) {
      await settled();
      flights[i]?.land();
    }
    await all;
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1, 1, 1], [1, 1], [50], [4, 4], [4]]);
  });

  it('runs a second batch beside another only from a minimum weight, up to its concurrency', async () => {
    const { batcher, flights } = held({ concurrencyMax: 2, weigh: (call) => call, minWeightWhenBusy: 5 });
    const all: Promise<string>[] = [];
    for (const call of [1, 2, 4, 9]) {
      all.push(batcher.run(call));
      await settled();
    }
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1], [2, 4]]);
    flights[0]?.land();
    await settled();
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1], [2, 4], [9]]);
    for (const { land } of flights) land();
    await Promise.all(all);
  });

  it('rejects one call for its own error, and the whole batch for an error of the batch', async () => {
    const own = new Batcher<number, string>({
      flush: async (calls) =>
        calls.map((call) => (call === 2 ? new DomainError('job_not_found', 'no 2') : `${call}`)),
      sizeMax: 10,
      waitingMax: 10,
    });
    const results = await Promise.allSettled([1, 2, 3].map((call) => own.run(call)));
    expect(results.map(({ status }) => status)).to.deep.equal(['fulfilled', 'rejected', 'fulfilled']);

    const { batcher, flights } = held();
    const first = failure(batcher.run(1));
    await settled();
    const second = batcher.run(2);
    flights[0]?.crash(new Error('the database fell over'));
    expect(await first).to.have.property('message', 'the database fell over');
    await settled();
    flights[1]?.land();
    expect(await second).to.equal('did 2');
  });

  it('drops a waiting call whose caller aborted, and never runs it', async () => {
    const { batcher, flights } = held();
    const first = batcher.run(1);
    await settled();
    const gone = new AbortController();
    const second = failure(batcher.run(2, gone.signal));
    const third = batcher.run(3);
    gone.abort();
    expect(await second).to.have.property('code', 'canceled');
    flights[0]?.land();
    await first;
    await settled();
    expect(flights.map(({ calls }) => calls)).to.deep.equal([[1], [3]]);
    flights[1]?.land();
    await third;
  });

  it('rejects an aborted call with the reason of its signal if that is a domain error', async () => {
    const { batcher, flights } = held();
    const first = batcher.run(1);
    await settled();
    const late = new AbortController();
    const second = failure(batcher.run(2, late.signal));
    late.abort(new DomainError('deadline_exceeded', 'too late'));
    expect(await second).to.have.property('code', 'deadline_exceeded');
    expect(await failure(batcher.run(3, late.signal))).to.have.property('code', 'deadline_exceeded');
    flights[0]?.land();
    await first;
  });

  it('aborts a running batch only after all of its callers have aborted', async () => {
    const { batcher, flights } = held();
    const blocker = batcher.run(0);
    await settled();
    const [a, b] = [new AbortController(), new AbortController()];
    const calls = [failure(batcher.run(1, a.signal)), failure(batcher.run(2, b.signal))];
    flights[0]?.land();
    await blocker;
    await settled();
    a.abort();
    expect(flights[1]?.signal?.aborted).to.equal(false);
    b.abort();
    expect(flights[1]?.signal?.aborted).to.equal(true);
    flights[1]?.crash(new Error('stopped'));
    await Promise.all(calls);
  });

  it('never aborts a batch that has a call without a deadline', async () => {
    const { batcher, flights } = held();
    const blocker = batcher.run(0);
    await settled();
    const gone = new AbortController();
    const calls = [failure(batcher.run(1, gone.signal)), batcher.run(2)];
    flights[0]?.land();
    await blocker;
    await settled();
    gone.abort();
    expect(flights[1]?.signal).to.equal(undefined);
    flights[1]?.land();
    await Promise.all(calls);
  });

  it('refuses calls beyond its bound as overloaded, and accepts calls again afterwards', async () => {
    const { batcher, flights } = held({ waitingMax: 2 });
    const first = batcher.run(1);
    await settled();
    const others = [batcher.run(2), batcher.run(3)];
    expect(await failure(batcher.run(4))).to.have.property('code', 'overloaded');
    flights[0]?.land();
    await settled();
    flights[1]?.land();
    await Promise.all([first, ...others]);
    const later = batcher.run(5);
    await settled();
    flights[2]?.land();
    expect(await later).to.equal('did 5');
  });

  it('closes after the last batch has ended, and refuses later calls', async () => {
    const { batcher, flights } = held();
    const answers = [batcher.run(1)];
    await settled();
    answers.push(batcher.run(2));
    let closed = false;
    const closing = batcher.close().then(() => {
      closed = true;
    });
    expect(await failure(batcher.run(3))).to.have.property('code', 'unavailable');
    flights[0]?.land();
    await settled();
    expect(closed).to.equal(false);
    flights[1]?.land();
    await closing;
    expect(await Promise.all(answers)).to.deep.equal(['did 1', 'did 2']);
    await batcher.close();
  });
});
