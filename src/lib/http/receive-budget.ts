/**
 * Bounds the cost of unfinished requests: the bytes of all bodies and messages that this process is still
 * receiving, the time that each of them takes, and the work of receiving one in tiny pieces.
 *
 * Guarantees:
 * - Unfinished requests hold at most `bytesMax` together.
 * - A request is on time while its bytes arrive at `bytesPerS` or faster; bytes that arrived faster before do
 *   not count.
 * - A request that needs capacity evicts the requests that have been late for the longest time, at least
 *   `stallMs`. If there are none, it is refused with `overloaded`.
 * - A request that falls `behindMs` behind is ended even if its capacity is not needed. A request of `n`
 *   bytes therefore ends within `behindMs` and the time that `n` bytes take at `bytesPerS`.
 * - Time in which the server does not read a request does not count.
 * - A request whose pieces are smaller than `pieceBytesMin` on average is refused after `piecesFree` of them:
 *   receiving them would cost more time than serving the request.
 *
 * Lifecycle: `open` once per request, `add` per piece, `close` when the request is complete, refused or
 * cancelled. A second `close` has no effect. A timer checks for late requests every `sweepMs`, and stops when
 * it finds no open request.
 */
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';

const piecesFree = 1_024;
const pieceBytesMin = 128;

export interface ReceiveLimits {
  bytesMax: number;
  bytesPerS: number;
  stallMs: number;
  behindMs: number;
  sweepMs: number;
}

const defaults: ReceiveLimits = {
  bytesMax: limits.receivingBytes,
  bytesPerS: limits.receivingBytesPerS,
  stallMs: limits.receivingStallMs,
  behindMs: limits.receivingBehindMs,
  sweepMs: 1_000,
};

/** How long the largest message may take to arrive. */
export const receiveMsMax = defaults.behindMs + (limits.frameBytes / defaults.bytesPerS) * 1_000;

export class ReceiveBudget {
  readonly #limits: ReceiveLimits;
  /** The open requests, in the order in which they were last on time. */
  readonly #open = new Set<Receiving>();
  #bytes = 0;
  #sweeping: NodeJS.Timeout | undefined;

  constructor(given: Partial<ReceiveLimits> = {}) {
    this.#limits = { ...defaults, ...given };
  }

  /** Bytes that unfinished requests hold now. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * `evict` ends the request early. `isPaused` returns whether the server, and not the client, delays the
   * request.
   */
  open(evict: (reason: DomainError) => void, isPaused = never): Receiving {
    const receiving = new Receiving(this, evict, isPaused);
    this.#open.add(receiving);
    this.#sweeping ??= setInterval(() => this.#sweep(), this.#limits.sweepMs).unref();
    return receiving;
  }

  /** Reserves capacity for a piece, or throws `overloaded`. */
  take(receiving: Receiving, bytes: number): void {
    if (this.#bytes + bytes > this.#limits.bytesMax) this.#makeRoom(receiving, bytes);
    this.#bytes += bytes;
    receiving.paidUntil += (bytes / this.#limits.bytesPerS) * 1_000;
    const now = performance.now();
    if (receiving.paidUntil >= now) this.#setOnTime(receiving, now);
  }

  give(receiving: Receiving): void {
    if (this.#open.delete(receiving)) this.#bytes -= receiving.bytes;
  }

  #setOnTime(receiving: Receiving, now: number): void {
    receiving.paidUntil = now;
    receiving.onTimeAt = now;
    this.#open.delete(receiving);
    this.#open.add(receiving);
  }

  #makeRoom(asking: Receiving, bytes: number): void {
    const { bytesMax, stallMs } = this.#limits;
    const lateSince = performance.now() - stallMs;
    for (const other of this.#open) {
      if (other.onTimeAt > lateSince) break;
      if (other === asking || other.bytes === 0 || other.isPaused()) continue;
      const words = `the request arrives slower than ${this.#rate()}, and others need its room; send it again`;
      other.evict(new DomainError('overloaded', words));
      if (this.#bytes + bytes <= bytesMax) return;
    }
    throw new DomainError('overloaded', 'too many large requests are being received; try again later');
  }

  #sweep(): void {
    const { behindMs } = this.#limits;
    const now = performance.now();
    for (const receiving of [...this.#open]) {
      if (receiving.isPaused()) this.#setOnTime(receiving, now);
      if (now - receiving.paidUntil < behindMs) continue;
      const words = `the request arrives slower than ${this.#rate()} and fell ${behindMs / 1_000} s behind; send it again`;
      receiving.evict(new DomainError('overloaded', words));
    }
    if (this.#open.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #rate(): string {
    return `${this.#limits.bytesPerS / 1_024} KiB/s`;
  }
}

const never = (): boolean => false;

/** One request that is being received. */
export class Receiving {
  readonly #budget: ReceiveBudget;
  readonly #evict: (reason: DomainError) => void;
  readonly isPaused: () => boolean;
  #bytes = 0;
  #pieces = 0;
  #isClosed = false;
  /** When it was last on time, by `performance.now()`. */
  onTimeAt = performance.now();
  /** The time until which the received bytes keep it on time. Past that, it is behind by the difference. */
  paidUntil = this.onTimeAt;

  constructor(budget: ReceiveBudget, evict: (reason: DomainError) => void, isPaused: () => boolean) {
    this.#budget = budget;
    this.#evict = evict;
    this.isPaused = isPaused;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts a piece of the request, or throws why the request is refused. */
  add(bytes: number): void {
    if (this.#isClosed) return;
    this.#budget.take(this, bytes);
    this.#bytes += bytes;
    this.#pieces += 1;
    if (this.#pieces > piecesFree && this.#bytes < this.#pieces * pieceBytesMin) throw tooManyPieces();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#budget.give(this);
  }

  evict(reason: DomainError): void {
    this.close();
    this.#evict(reason);
  }
}

const tooManyPieces = (): DomainError =>
  new DomainError(
    'invalid_request',
    `body: arrives in more than ${piecesFree} pieces of less than ${pieceBytesMin} bytes on average`,
    { field: 'body' },
  );

/** Whether a discarded body arrives in pieces that are too small to be worth reading. */
export const isTrickle = (pieces: number, bytes: number): boolean =>
  pieces > piecesFree && bytes < pieces * pieceBytesMin;

/** The budget of this process, for all of its APIs. */
export const receiveBudget = new ReceiveBudget();
