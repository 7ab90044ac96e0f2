import { expect } from 'chai';
import type { Grant, Release } from '../../../src/domain/leases/lease.ts';
import type { EndOutcome } from '../../../src/engine/dispatch/lease-endings.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { createLookups } from '../../../src/rpc/heartbeat-stream/pushed-verdicts.ts';
import { workTransitions } from '../../../src/rpc/heartbeat-stream/states.ts';
import { drainFrame } from '../../../src/rpc/work-stream/encode.ts';
import { type WorkEngine, WorkStream } from '../../../src/rpc/work-stream/session.ts';
import { ScriptedStream, settle } from '../../support/scripted-stream.ts';
import { failOne, StreamDriver, testEveryPair, unreachedIn } from '../../support/stream-states.ts';
import { workFrame } from '../../support/work-streams.ts';

/** A call of the session that waits for the test. */
interface Waiting<Answer> {
  answered: boolean;
  answer(value: Answer): void;
  fail(error: unknown): void;
}

function wait<Answer>(calls: Waiting<Answer>[]): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call: Waiting<Answer> = {
      answered: false,
      answer: (value) => {
        call.answered = true;
        resolve(value);
      },
      fail: (error) => {
        call.answered = true;
        reject(error);
      },
    };
    calls.push(call);
  });
}

class WorkDriver extends StreamDriver {
  readonly #releases: (Waiting<EndOutcome[]> & { of: readonly Release[] })[] = [];
  readonly #fetches: Waiting<readonly Grant[]>[] = [];
  readonly stream = new ScriptedStream((stream, { peer, signal }) => {
    const { leases, files, workers } = this.engine;
    const engine: WorkEngine = {
      leases: {
        ...leases,
        fetch: () => wait(this.#fetches),
        endEach: (of) => {
          const calls: Waiting<EndOutcome[]>[] = [];
          const ended = wait(calls);
          this.#releases.push(Object.assign(calls[0] as Waiting<EndOutcome[]>, { of }));
          return ended;
        },
      },
      files,
      workers,
      draining: false,
    };
    return new WorkStream({ engine, stream, peer, signal, looks: createLookups(leases) });
  });

  frame(): Buffer {
    return workFrame({ workerId: 'w', heartbeats: [{ leaseId: newId() }] });
  }

  /** Begins a request for jobs and two calls with releases as well. */
  override async begin(): Promise<void> {
    this.stream.holds = (bytes) => bytes.equals(drainFrame());
    this.stream.give(workFrame({ workerId: 'w', credits: [{ jobs: 1 }] }));
    await settle();
    for (let calls = 0; calls < 2; calls++) {
      this.stream.give(workFrame({ releases: [{ leaseId: newId(), status: 1 }] }));
      await settle();
    }
    await super.begin();
    expect([this.#fetches.length, this.#releases.length]).to.deep.equal([1, 2]);
  }

  protected override failWork(): void {
    failOne([...this.#releases, ...this.#fetches]);
  }

  protected override async answerAll(): Promise<void> {
    if (this.state === 'DrainSent') this.stream.take();
    for (const call of this.#releases)
      if (!call.answered) call.answer(call.of.map(() => ({ requeued: false, deadLettered: false })));
    await super.answerAll();
  }

  /** A grant cannot be encoded. It may arrive while the frame with `drain` is leaving. */
  protected override async breakSession(): Promise<void> {
    this.#fetches[0]?.answer([{ lease: { leaseId: newId() }, heartbeatWithinMs: 1 } as Grant]);
    await settle();
    this.stream.take();
  }
}

describe('the states of a work stream', () => {
  it('reaches every state', () => {
    expect(unreachedIn(workTransitions)).to.deep.equal([]);
  });

  testEveryPair(workTransitions, () => new WorkDriver());

  it('remembers that a stream ended with an error', async () => {
    const driver = new WorkDriver();
    await driver.begin();
    const leaseId = driver.engine.calls[0]?.of[0]?.leaseId as string;
    await driver.cause('frame refused');
    await driver.cause('all answered');
    expect(driver.engine.leaseSubscriptions.lastDisconnectOf(leaseId)).to.include({ how: 'failed' });
  });
});
