/** The guarantee: a task runs at the requested times, one run at a time, and never after a stop. */
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { expect } from 'chai';
import { PeriodicTask } from '../../../src/lib/async/periodic-task.ts';

const hourMs = 3_600_000;

/** A task whose runs the test ends one after the other, with a pause or with an error. */
class Stage {
  readonly failures: unknown[] = [];
  readonly rounds: PeriodicTask;
  begun = 0;
  atOnce = 0;
  mostAtOnce = 0;
  #round = Promise.withResolvers<number>();
  readonly #begins = new PassThrough({ objectMode: true });

  constructor(failedMs = hourMs) {
    this.rounds = new PeriodicTask({
      run: async () => {
        this.begun++;
        this.mostAtOnce = Math.max(this.mostAtOnce, ++this.atOnce);
        this.#round = Promise.withResolvers<number>();
        this.#begins.emit('begin');
        try {
          return await this.#round.promise;
        } finally {
          this.atOnce--;
        }
      },
      onFailed: (error) => this.failures.push(error),
      failedMs,
    });
  }

  async until(begun: number): Promise<void> {
    while (this.begun < begun) await once(this.#begins, 'begin');
  }

  end(pauseMs: number): void {
    this.#round.resolve(pauseMs);
  }

  fail(error: Error): void {
    this.#round.reject(error);
  }
}

/** Longer than an immediate run needs to start. */
const aWhile = () => new Promise((resolve) => setTimeout(resolve, 50));

describe('PeriodicTask', () => {
  let stage: Stage;
  beforeEach(() => {
    stage = new Stage();
  });
  afterEach(async () => {
    stage.end(hourMs);
    await stage.rounds.stop();
  });

  it('repeats after the pause that each run asks for, one run at a time', async () => {
    stage.rounds.start();
    stage.rounds.start();
    for (const round of [1, 2, 3]) {
      await stage.until(round);
      stage.rounds.wakeIn(0);
      stage.end(round === 3 ? hourMs : 1);
    }
    await stage.until(4);
    await aWhile();
    expect(stage).to.include({ begun: 4, mostAtOnce: 1 });
  });

  it('runs at the earliest requested time, whatever later times are requested', async () => {
    stage.rounds.start(hourMs);
    stage.rounds.wakeIn(20);
    stage.rounds.wakeIn(hourMs);
    const sinceMs = performance.now();
    await stage.until(1);
    expect(performance.now() - sinceMs).to.be.at.least(18);
    stage.end(hourMs);
    await aWhile();
    expect(stage.begun).to.equal(1);
    stage.rounds.wakeIn(1);
    await stage.until(2);
  });

  it('runs again for a request that arrives during a run', async () => {
    stage.rounds.start();
    await stage.until(1);
    stage.rounds.wakeIn(1);
    await aWhile();
    expect(stage.begun).to.equal(1);
    stage.end(hourMs);
    await stage.until(2);
  });

  it('continues after a run that fails, and reports the error', async () => {
    stage = new Stage(1);
    const error = new Error('no');
    stage.rounds.start();
    await stage.until(1);
    stage.fail(error);
    await stage.until(2);
    expect(stage.failures).to.deep.equal([error]);
  });

  it('ignores requests after it was stopped until it is started again', async () => {
    stage.rounds.start();
    await stage.until(1);
    stage.rounds.wakeIn(0);
    let isStopped = false;
    const stopping = stage.rounds.stop().then(() => {
      isStopped = true;
    });
    await aWhile();
    expect(isStopped).to.equal(false);
    stage.fail(new Error('stopped'));
    await stopping;
    stage.rounds.wakeIn(0);
    await aWhile();
    expect([stage.begun, stage.failures]).to.deep.equal([1, []]);
    stage.rounds.start();
    await stage.until(2);
  });

  it('waits for longer than a timer can run', async () => {
    stage.rounds.start(2 ** 40);
    await aWhile();
    expect(stage.begun).to.equal(0);
  });
});
