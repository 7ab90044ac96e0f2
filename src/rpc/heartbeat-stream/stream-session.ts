/**
 * The session of a stream that carries heartbeats: its state, and the reading of its frames.
 * - Purpose: turns what happens to the stream into events, looks them up in the table of `states.ts`, and
 *   carries out their actions. A subclass reads the fields that only its stream has.
 * - Guarantees: a frame is requested only in the state Open and while there is room for it. A frame larger
 *   than the room is read in slices, as answers leave. After `Closed` no event has an effect.
 * - Failure modes: a programming error, or an event that the table does not allow, ends this stream and
 *   nothing else.
 */
import type { StreamEnd } from '../../domain/explain/facts.ts';
import type { FrameSession, FrameStream } from '../implementation.ts';
import type { TransitionTable } from '../transition-table.ts';
import type { FrameSlice, SlicedFrame } from './frames.ts';
import { type ExchangeEngine, type ExchangeHost, HeartbeatExchange } from './heartbeat-exchange.ts';
import type { Lookups } from './pushed-verdicts.ts';
import type { StreamAction, StreamEvent, StreamState } from './states.ts';

/** How long a stream may send verdicts with `drain` before it ends. */
const drainMs = 1_500;

export interface SessionOptions {
  engine: ExchangeEngine;
  stream: FrameStream;
  signal: AbortSignal | undefined;
  looks: Lookups;
  transitions: TransitionTable<StreamState, StreamEvent, StreamAction>;
}

export abstract class StreamSession<Slice extends FrameSlice> implements FrameSession, ExchangeHost {
  protected readonly heartbeats: HeartbeatExchange;
  readonly #stream: FrameStream;
  readonly #transitions: SessionOptions['transitions'];
  #state: StreamState = 'Open';
  /** The event "all answered" is allowed in this state. */
  #endsWhenAnswered = false;
  /** The frame that is being read in slices. */
  #frame: SlicedFrame<Slice> | undefined;
  #frameRequested = true;
  /** The error with which the stream will end. */
  #error: unknown;
  #drainTimer: NodeJS.Timeout | undefined;
  #isStopping = false;

  constructor({ stream, transitions, ...options }: SessionOptions) {
    this.#stream = stream;
    this.#transitions = transitions;
    this.heartbeats = new HeartbeatExchange({ ...options, host: this });
  }

  get state(): StreamState {
    return this.#state;
  }

  onFrame(bytes: Buffer): void {
    this.#frameRequested = false;
    this.handle('frame arrives', bytes);
  }

  onEnd(): void {
    this.handle('client ends');
  }

  onGone(): void {
    this.handle('connection lost');
  }

  /** From now on each verdict asks the client to leave. The stream goes on until it does, or is ended. */
  onLeave(): void {
    this.heartbeats.leave();
  }

  /** The age of the connection and the end of the server may both say so. */
  onServerStops(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.safely(() => this.#step('server stops'));
    // A stream that is notified while it is being opened has nothing to send yet.
    queueMicrotask(() => this.advance());
  }

  /** The end of the call that failed advances the session. */
  onHeartbeatsFailed(error: unknown): void {
    this.safely(() => this.#step('heartbeats fail', error));
  }

  send(frame: Buffer, onSent: () => void): void {
    this.#stream.send(frame, onSent);
  }

  advance(): void {
    this.safely(() => this.#advance());
  }

  safely(work: () => void): void {
    if (this.#state === 'Closed') return;
    try {
      work();
    } catch (error) {
      // The end itself failed. The session ends the stream once more; a stream that has ended ignores that.
      if (this.state === 'Closed') this.#stream.end(error);
      else this.#step('session breaks', error);
    }
  }

  /** Changes the state as the table says, and goes on from there. */
  protected handle(event: StreamEvent, detail?: unknown): void {
    this.safely(() => {
      this.#step(event, detail);
      this.#advance();
    });
  }

  /** The weight of the next slice, at most; 0 or less while there is no room. */
  protected abstract readonly sliceMax: number;
  protected abstract openFrame(bytes: Buffer): SlicedFrame<Slice>;
  protected abstract takeSlice(slice: Slice): void;
  protected abstract close(): void;

  /** Everything beside heartbeats is answered, and every answer has left. */
  protected get isWorkAnswered(): boolean {
    return true;
  }

  /** The whole frame has been read. */
  protected onFrameRead(_frame: SlicedFrame<Slice>): void {}

  /** Schedules whatever is ready, beside heartbeats. */
  protected advanceWork(): void {}

  /** Requests no further jobs. */
  protected stopWork(): void {}

  /** Sends the frame that tells the client to leave. Only the table of work streams has this action. */
  protected sendDrainFrame(): void {}

  #step(event: StreamEvent, detail?: unknown): void {
    const { to, action } = this.#transitions.step(this.#state, event);
    if (to !== this.#state) this.#enter(to);
    this.#act(action, detail);
  }

  #enter(state: StreamState): void {
    if (this.#state === 'Draining') clearTimeout(this.#drainTimer);
    this.#state = state;
    this.#endsWhenAnswered = this.#transitions.allows(state, 'all answered');
  }

  #act(action: StreamAction, detail: unknown): void {
    switch (action) {
      case 'read frame':
        this.#openFrame(detail as Buffer);
        break;
      case 'start drain timer':
        this.#drainTimer = setTimeout(() => this.handle('drain expires'), drainMs);
        break;
      case 'stop work':
        this.stopWork();
        break;
      case 'keep error':
        this.#fail(detail);
        break;
      case 'keep error, drop heartbeats':
        this.heartbeats.drop();
        this.#fail(detail);
        break;
      case 'send drain frame':
        this.sendDrainFrame();
        break;
      case 'end stream: client ended':
        this.#end('ended');
        break;
      case 'end stream: drained':
        this.#end('drained');
        break;
      case 'end stream: error':
        this.#end('failed', detail ?? this.#error);
        break;
      case 'close':
        this.#close('gone');
        break;
      case 'none':
        break;
    }
  }

  #advance(): void {
    this.#readSlices();
    this.heartbeats.advance();
    this.advanceWork();
    this.#requestFrame();
    this.#endIfAnswered();
  }

  #openFrame(bytes: Buffer): void {
    try {
      this.#frame = this.openFrame(bytes);
    } catch (error) {
      this.#step('frame refused', error);
    }
  }

  #readSlices(): void {
    while (this.#frame && this.sliceMax > 0) {
      const frame = this.#frame;
      try {
        this.takeSlice(frame.next(this.sliceMax));
      } catch (error) {
        this.#step('frame refused', error);
        return;
      }
      if (!frame.done) continue;
      this.#frame = undefined;
      this.onFrameRead(frame);
    }
  }

  #requestFrame(): void {
    if (this.#state !== 'Open' || this.#frameRequested || this.#frame || this.sliceMax <= 0) return;
    this.#frameRequested = true;
    this.#stream.read();
  }

  #endIfAnswered(): void {
    if (!this.#endsWhenAnswered || this.#frame) return;
    if (!this.heartbeats.isAnswered || !this.isWorkAnswered) return;
    if (this.#state === 'Draining' && !this.heartbeats.hasPushedAll) return;
    this.#step('all answered');
  }

  #fail(error: unknown): void {
    this.#error ??= error;
    this.#frame = undefined;
    this.stopWork();
  }

  #end(how: StreamEnd, error?: unknown): void {
    this.#close(how);
    this.#stream.end(error);
  }

  #close(how: StreamEnd): void {
    this.#frame = undefined;
    this.heartbeats.close(how);
    this.close();
  }
}
