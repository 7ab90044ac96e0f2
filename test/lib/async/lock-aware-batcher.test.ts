import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { DomainError } from '../../../src/domain/errors.ts';
import {
  type Attempts,
  LockAwareBatcher,
  type LockAwareBatcherOptions,
  rowLocked,
} from '../../../src/lib/async/lock-aware-batcher.ts';
import { failure } from '../../support/failure.ts';

interface Flight {
  items: readonly string[];
  wait: boolean;
  signal: AbortSignal | undefined;
  land(): void;
  crash(error: Error): void;
}

/** A batcher whose batches end when the test says so. `answer` decides each item when its batch ends. */
function batcherWith(
  answer: (item: string, wait: boolean) => string | Error | typeof rowLocked,
  options: Partial<LockAwareBatcherOptions<string, string | Error>> = {},
) {
  const flights: Flight[] = [];
  const batcher = new LockAwareBatcher<string, string | Error>({
    flush: (items, wait, signal) =>
      new Promise<Attempts<string | Error>>((resolve, reject) => {
        let hasLanded = false;
        const land = () => {
          if (!hasLanded) resolve(items.map((item) => answer(item, wait)));
          hasLanded = true;
        };
        flights.push({ items, wait, signal, land, crash: reject });
      }),
    first: { meter: undefined, sizeMax: 100 },
    lockedMeter: undefined,
    waitingMax: 1_000,
    ...options,
  });
  return { batcher, flights };
}

/** The items whose rows are locked until a batch waits for them. */
const lockedUntilWaiting =
  (...locked: readonly string[]) =>
  (item: string, wait: boolean) =>
    locked.includes(item) && !wait ? rowLocked : `did ${item}`;

/** Ends all batches that have started, and those that they lead to. */
async function landAll(flights: readonly Flight[]): Promise<void> {
  for (let next = 0, idle = 0; idle < 3; ) {
    await turn();
    if (next === flights.length) idle++;
    else idle = 0;
    for (; next < flights.length; next++) flights[next]?.land();
  }
}

const batchesOf = (flights: readonly Flight[]) => flights.map(({ items, wait }) => ({ items, wait }));

describe('LockAwareBatcher', () => {
  it('answers an item whose row is free with one batch that does not wait', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting());
    const answer = batcher.run('a');
    await landAll(flights);
    expect(await answer).to.equal('did a');
    expect(batchesOf(flights)).to.deep.equal([{ items: ['a'], wait: false }]);
  });

  it('tries an item whose row is locked again in a batch that waits, without the other items', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const answers = ['a', 'b', 'c'].map((item) => batcher.run(item));
    await landAll(flights);
    expect(await Promise.all(answers)).to.deep.equal(['did a', 'did b', 'did c']);
    expect(batchesOf(flights)).to.deep.equal([
      { items: ['a', 'b', 'c'], wait: false },
      { items: ['b'], wait: true },
    ]);
  });

  it('answers the other items while a batch waits for a locked row', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const answers = await Promise.all([batcher.runEach(['a', 'b']), turn().then(() => flights[0]?.land())]);
    const [first, late] = answers[0];
    expect(first).to.equal('did a');
    expect(late).to.be.instanceOf(Promise);
    const other = batcher.run('c');
    await turn();
    expect(batchesOf(flights).slice(1)).to.deep.equal([
      { items: ['b'], wait: true },
      { items: ['c'], wait: false },
    ]);
    flights[2]?.land();
    expect(await other).to.equal('did c');
    flights[1]?.land();
    expect(await late).to.equal('did b');
  });

  it('repeats the attempt that waits until the row can be decided', async () => {
    let attempts = 0;
    const { batcher, flights } = batcherWith(() => (++attempts < 4 ? rowLocked : `after ${attempts}`));
    const answer = batcher.run('a');
    await landAll(flights);
    expect(await answer).to.equal('after 4');
    expect(flights.map(({ wait }) => wait)).to.deep.equal([false, true, true, true]);
  });

  it('limits how many items wait for locked rows in one batch, and how many batches do', async () => {
    const items = Array.from({ length: 20 }, (_, i) => `${i}`);
    const { batcher, flights } = batcherWith(lockedUntilWaiting(...items));
    const answers = batcher.runEach(items);
    await turn();
    flights[0]?.land();
    const late = await answers;
    await turn();
    const waiting = flights.slice(1).map((flight) => flight.items.length);
    expect(waiting).to.deep.equal([4, 4, 4, 4]);
    await Promise.all([landAll(flights), ...late]);
  });

  it('adds up the weight of the items of a call', async () => {
    const first = { meter: undefined, sizeMax: 100, weightMax: 4 };
    const { batcher, flights } = batcherWith(lockedUntilWaiting(), {
      first,
      weigh: ({ length }) => length,
    });
    const answers = [['aa', 'b'], ['c'], ['dd']].map((items) => batcher.runEach(items));
    await landAll(flights);
    await Promise.all(answers);
    expect(flights.map(({ items }) => items)).to.deep.equal([['aa', 'b', 'c'], ['dd']]);
  });

  it('fails an item by its own error, in the first attempt and in the one that waits', async () => {
    const refused = new DomainError('job_not_found', 'no such job');
    const { batcher, flights } = batcherWith((item, wait) => {
      if (item === 'bad') return refused;
      if (item === 'late') return wait ? refused : rowLocked;
      return `did ${item}`;
    });
    const each = batcher.runEach(['a', 'bad', 'late']);
    const alone = [failure(batcher.run('bad')), failure(batcher.run('late'))];
    await landAll(flights);
    const [answer, bad, late] = await each;
    expect(answer).to.equal('did a');
    expect(bad).to.equal(refused);
    expect(await failure(late as Promise<string>)).to.equal(refused);
    expect(await Promise.all(alone)).to.deep.equal([refused, refused]);
  });

  it('fails only the items of a batch that fails', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const answers = batcher.runEach(['a', 'b']);
    await turn();
    flights[0]?.land();
    const [first, late] = await answers;
    await turn();
    const other = batcher.run('c');
    flights[1]?.crash(new Error('the database fell over'));
    expect(await failure(late as Promise<string>)).to.have.property('message', 'the database fell over');
    await landAll(flights);
    expect([first, await other]).to.deep.equal(['did a', 'did c']);
  });

  it('cancels an item that waits for a locked row, and aborts its batch', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const caller = new AbortController();
    const [each, alone] = [
      batcher.runEach(['a', 'b'], caller.signal),
      failure(batcher.run('b', caller.signal)),
    ];
    await turn();
    flights[0]?.land();
    const [first, late] = await each;
    await turn();
    caller.abort();
    expect(first).to.equal('did a');
    expect(await failure(late as Promise<string>)).to.have.property('code', 'canceled');
    expect(await alone).to.have.property('code', 'canceled');
    expect(flights[1]).to.deep.include({ items: ['b', 'b'], wait: true });
    expect(flights[1]?.signal?.aborted).to.equal(true);
    expect(await failure(batcher.run('c', caller.signal))).to.have.property('code', 'canceled');
    await landAll(flights);
  });

  it('closes after both kinds of batches have ended, and then refuses items', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const answers = batcher.runEach(['a', 'b']);
    await turn();
    flights[0]?.land();
    const [first, late] = await answers;
    await turn();
    let closed = false;
    const closing = batcher.close().then(() => {
      closed = true;
    });
    await turn();
    expect({ closed, running: flights[1]?.items }).to.deep.equal({ closed: false, running: ['b'] });
    expect(await failure(batcher.run('c'))).to.have.property('code', 'unavailable');
    flights[1]?.land();
    await closing;
    expect([first, await late]).to.deep.equal(['did a', 'did b']);
  });

  it('answers an item that is between two attempts when the batcher closes', async () => {
    let attempts = 0;
    const { batcher, flights } = batcherWith(() => (++attempts < 4 ? rowLocked : `after ${attempts}`));
    const alone = batcher.run('a');
    await turn();
    const closing = batcher.close();
    await landAll(flights);
    expect(await alone).to.equal('after 4');
    await closing;
  });

  it('answers late items when the batcher closes before their second attempt', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('b'));
    const each = batcher.runEach(['a', 'b']);
    await turn();
    const closing = batcher.close();
    await landAll(flights);
    expect(await Promise.all(await each)).to.deep.equal(['did a', 'did b']);
    await closing;
  });

  it('waits for steps that a caller takes between two attempts when it closes', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting('a'));
    let goOn = () => {};
    const answer = batcher.runSteps(async ({ attempt, attemptWaiting }) => {
      await attempt('a', undefined);
      await new Promise<void>((resolve) => {
        goOn = resolve;
      });
      return attemptWaiting('a', undefined);
    });
    await turn();
    flights[0]?.land();
    let closed = false;
    const closing = batcher.close().then(() => {
      closed = true;
    });
    await landAll(flights);
    expect(closed).to.equal(false);
    expect(await failure(batcher.run('b'))).to.have.property('code', 'unavailable');
    goOn();
    await landAll(flights);
    expect(await answer).to.equal('did a');
    await closing;
  });

  it('takes the first answers from another batcher if it is given one', async () => {
    const { batcher, flights } = batcherWith(lockedUntilWaiting(), {
      first: async (items) => items.map((item) => (item === 'b' ? rowLocked : `elsewhere ${item}`)),
    });
    const [first, late] = await batcher.runEach(['a', 'b']);
    const alone = batcher.run('b');
    await landAll(flights);
    expect([first, await late, await alone]).to.deep.equal(['elsewhere a', 'did b', 'did b']);
    expect(batchesOf(flights)).to.deep.equal([{ items: ['b', 'b'], wait: true }]);
    await batcher.close();
  });

  it('answers every item once, whichever rows are locked and however calls are grouped', async () => {
    for (let seed = 1; seed <= 200; seed++) {
      let state = seed;
      const random = (below: number) => {
        state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
        return Math.floor((state / 2 ** 31) * below);
      };
      const done: string[] = [];
      const { batcher, flights } = batcherWith(
        (item) => {
          if (random(3) === 0) return rowLocked;
          done.push(item);
          return `did ${item}`;
        },
        { first: { meter: undefined, sizeMax: 7, concurrencyMax: 2, minWeightWhenBusy: 3 } },
      );
      let next = 0;
      const calls: Promise<{ items: string[]; answers: unknown[] }>[] = [];
      for (let call = 0; call < 10; call++) {
        const items = Array.from({ length: random(5) }, () => `${next++}`);
        const each = batcher.runEach(items).then((answers) => Promise.all(answers));
        calls.push(each.then((answers) => ({ items, answers })));
        if (random(2) === 0) await turn();
        flights[random(flights.length)]?.land();
      }
      await landAll(flights);
      for (const { items, answers } of await Promise.all(calls))
        expect(answers, `seed ${seed}`).to.deep.equal(items.map((item) => `did ${item}`));
      const wanted = Array.from({ length: next }, (_, i) => `${i}`);
      expect(done.sort(), `seed ${seed}`).to.deep.equal(wanted.sort());
    }
  });
});
