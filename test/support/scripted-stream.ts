/** The protocol's side of a stream for tests of its session. */
import { expect } from 'chai';
import type { LeaseVerdict } from '../../gen/leasehold/v1/leases_pb.js';
import { DomainError } from '../../src/domain/errors.ts';
import type { Caller } from '../../src/engine/context/engine-context.ts';
import type { FrameSession, FrameStream } from '../../src/rpc/implementation.ts';
import { verdictsIn } from './heartbeat-streams.ts';
import { caller } from './jobs.ts';

/** Waits until every pending callback has run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** The protocol's side of a stream: delivers requested frames, and lets a test delay answers. */
export class ScriptedStream<Session extends FrameSession = FrameSession> implements FrameStream {
  readonly sent: Buffer[] = [];
  readonly frames: LeaseVerdict[][] = [];
  readonly #unread: Buffer[] = [];
  readonly #held: (() => void)[] = [];
  readonly #gone = new AbortController();
  readonly session: Session;
  /** Whether the client accepts what is sent. */
  takes = true;
  /** A frame that the client accepts only after `take`. */
  holds = (_: Buffer): boolean => false;
  ended: { error: unknown } | undefined;
  #wanted = true;

  constructor(open: (stream: FrameStream, caller: Caller) => Session) {
    this.session = open(this, { ...caller, signal: this.#gone.signal });
  }

  get unread(): number {
    return this.#unread.length;
  }

  get asks(): boolean {
    return this.#wanted;
  }

  get verdicts(): LeaseVerdict[] {
    return this.frames.flat();
  }

  get told(): string[] {
    return this.verdicts.map(({ leaseId }) => leaseId);
  }

  give(...frames: Buffer[]): void {
    this.#unread.push(...frames);
    this.#deliver();
  }

  take(): void {
    this.takes = true;
    for (const sent of this.#held.splice(0)) sent();
  }

  leave(): void {
    this.#gone.abort(new DomainError('canceled', 'the caller has gone'));
    this.session.onGone();
  }

  read(): void {
    expect(this.#wanted, 'asked for a frame that was asked for already').to.equal(false);
    this.#wanted = true;
    setImmediate(() => this.#deliver());
  }

  send(bytes: Buffer, onSent: () => void): void {
    expect(this.ended, 'sent after the end').to.equal(undefined);
    this.sent.push(bytes);
    this.frames.push(verdictsIn(bytes));
    if (this.takes && !this.holds(bytes)) setImmediate(onSent);
    else this.#held.push(onSent);
  }

  end(error?: unknown): void {
    expect(this.ended, 'ended twice').to.equal(undefined);
    this.ended = { error };
  }

  #deliver(): void {
    if (!this.#wanted || this.ended) return;
    const next = this.#unread.shift();
    if (!next) return;
    this.#wanted = false;
    this.session.onFrame(next);
  }
}
