/** Drives a stream session through its table of states: every event in every state that it can reach. */
import { mock } from 'node:test';
import { expect } from 'chai';
import type { Verdict } from '../../src/domain/leases/lease.ts';
import type { FrameSlice } from '../../src/rpc/heartbeat-stream/frames.ts';
import {
  type heartbeatTransitions,
  type StreamEvent,
  type StreamState,
  streamEvents,
  streamStates,
} from '../../src/rpc/heartbeat-stream/states.ts';
import type { StreamSession } from '../../src/rpc/heartbeat-stream/stream-session.ts';
import type { FrameSession } from '../../src/rpc/implementation.ts';
import { type Asked, ScriptedEngine } from './heartbeat-streams.ts';
import { type ScriptedStream, settle } from './scripted-stream.ts';

type Table = typeof heartbeatTransitions;
type Session = StreamSession<FrameSlice> & FrameSession;

/** Longer than a session may send verdicts with `drain`. */
const pastDrainMs = 2_000;

/** A stream in the state Open, with calls to the engine that wait for their answer. */
export abstract class StreamDriver {
  readonly engine = new ScriptedEngine();
  abstract readonly stream: ScriptedStream<Session>;

  get state(): StreamState {
    return this.stream.session.state;
  }

  /** A frame with one heartbeat. */
  abstract frame(): Buffer;

  /** Begins calls that fail or hold the stream open, and subscribes to a lease that a drain announces. */
  async begin(): Promise<void> {
    this.stream.give(this.frame());
    await settle();
    this.engine.answerAll();
    await settle();
    for (let calls = 0; calls < 3; calls++) {
      this.stream.give(this.frame());
      await settle();
    }
    expect([this.state, this.engine.open]).to.deep.equal(['Open', 3]);
  }

  /** Gives a frame that is larger than the room, and cannot be read at its end. */
  async beginLargeFrame(): Promise<void> {
    this.stream.give(Buffer.concat([...Array<Buffer>(25_000).fill(this.frame()), broken]));
    await settle();
    expect(this.stream.asks, 'the frame is read in slices').to.equal(false);
  }

  /** Does what causes an event in a server. In a state without this event it is done all the same. */
  async cause(event: StreamEvent): Promise<void> {
    const { stream, engine } = this;
    if (event === 'frame arrives') this.#deliver(this.frame());
    else if (event === 'client ends') stream.session.onEnd();
    else if (event === 'server stops') await engine.leaseSubscriptions.drain();
    else if (event === 'drain expires') mock.timers.tick(pastDrainMs);
    else if (event === 'frame refused') await this.#refuse();
    else if (event === 'heartbeats fail') failOne(engine.calls);
    else if (event === 'work fails') this.failWork();
    else if (event === 'all answered') await this.answerAll();
    else if (event === 'connection lost') stream.leave();
    else await this.breakSession();
    await settle();
  }

  protected abstract failWork(): void;

  protected async answerAll(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) {
      for (const asked of [...this.engine.calls, ...this.engine.looks]) if (!asked.answered) asked.answer();
      await settle();
    }
  }

  /** The answer of a call cannot be encoded. */
  protected async breakSession(): Promise<void> {
    this.engine.calls.find(({ answered }) => !answered)?.answer([{ kind: 'lost' } as Verdict]);
  }

  /** A state without the event gets a frame that nothing has requested. */
  #deliver(bytes: Buffer): void {
    if (this.stream.asks) this.stream.give(bytes);
    else this.stream.session.onFrame(bytes);
  }

  async #refuse(): Promise<void> {
    if (this.state !== 'ClientEnded') {
      if (this.stream.asks) this.stream.give(broken);
      return;
    }
    for (let turn = 0; turn < 200 && this.state === 'ClientEnded'; turn++) {
      const open = this.engine.calls.filter(({ answered }) => !answered);
      for (const call of open.slice(0, -1)) call.answer();
      await settle();
    }
  }
}

/** A heartbeat that is cut off. */
const broken = Buffer.from([0x0a, 0x7f]);

export function failOne(asked: readonly Pick<Asked<unknown>, 'answered' | 'fail'>[]): void {
  asked.find(({ answered }) => !answered)?.fail(new Error('broken'));
}

/** The events that lead from Open to every state that a session can reach. */
export function pathsIn(table: Table): Map<StreamState, StreamEvent[]> {
  const paths = new Map<StreamState, StreamEvent[]>([['Open', []]]);
  for (const [state, path] of paths) {
    for (const event of streamEvents) {
      if (!table.allows(state, event)) continue;
      const { to } = table.step(state, event);
      if (!paths.has(to)) paths.set(to, [...path, event]);
    }
  }
  return paths;
}

/** Events of the protocol that it never sends in these states. A session must not accept them. */
const violations: readonly [StreamState, StreamEvent][] = [
  ['ClientEnded', 'frame arrives'],
  ['ClientEnded', 'client ends'],
];

/** Tests for every pair of a reachable state and an event. */
export function testEveryPair(table: Table, open: () => StreamDriver): void {
  let driver: StreamDriver;
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout'] });
    driver = open();
  });
  afterEach(() => {
    if (driver.state !== 'Closed') driver.stream.leave();
    mock.timers.reset();
  });

  const reach = async (path: readonly StreamEvent[], last: StreamEvent) => {
    await driver.begin();
    if (path.at(-1) === 'client ends' && last === 'frame refused') await driver.beginLargeFrame();
    for (const event of path) {
      const { to } = table.step(driver.state, event);
      await driver.cause(event);
      expect(driver.state, `after "${event}"`).to.equal(to);
    }
  };

  const endOf = (action: string) => {
    if (action === 'end stream: error') return 'error';
    return action.startsWith('end stream') ? 'OK' : 'none';
  };
  const ended = () => {
    if (!driver.stream.ended) return 'none';
    return driver.stream.ended.error === undefined ? 'OK' : 'error';
  };

  const events = streamEvents.filter((event) => table.rows.some((row) => row.event === event));
  for (const [state, path] of pathsIn(table)) {
    for (const event of events) {
      if (table.allows(state, event)) {
        const { to, action } = table.step(state, event);
        it(`goes from ${state} to ${to} for "${event}"`, async () => {
          await reach(path, event);
          await driver.cause(event);
          expect([driver.state, ended()]).to.deep.equal([to, endOf(action)]);
        });
      } else if (violations.some((pair) => pair[0] === state && pair[1] === event)) {
        it(`ends with an error for "${event}" in ${state}, which the table does not allow`, async () => {
          await reach(path, event);
          await driver.cause(event);
          expect(driver.state).to.equal('Closed');
          expect(String(driver.stream.ended?.error)).to.include(`"${event}" is not allowed in ${state}`);
        });
      } else {
        it(`cannot be brought from ${state} by "${event}"`, async () => {
          await reach(path, event);
          const before = ended();
          await driver.cause(event);
          expect([driver.state, ended()]).to.deep.equal([state, before]);
        });
      }
    }
  }
}

/** The states that a session cannot reach. */
export const unreachedIn = (table: Table): StreamState[] => {
  const paths = pathsIn(table);
  return streamStates.filter((state) => !paths.has(state));
};
