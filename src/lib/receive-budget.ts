/**
 * Bounds what unfinished requests cost: the bytes of all bodies and messages that this process is still receiving, and
 * the work of receiving one in tiny pieces.
 *
 * Guarantees: unfinished requests hold at most `bytesMax` together. A request that needs more evicts the requests that
 * made no progress for the longest time, at least `stallMs`; where there is none, it is refused itself with
 * `overloaded`. A request whose pieces are smaller than `pieceBytesMin` on average is refused after `piecesFree` of
 * them: receiving them would cost more time than serving the request.
 * Lifecycle: `open` once per request, `add` per piece, `close` when the request is complete, refused or gone. A second
 * `close` does nothing.
 */
import { DomainError } from '../domain/errors.ts';

/** Eight of the largest frames. */
const bytesMax = 128 * 1024 * 1024;
const stallMs = 1_000;
const piecesFree = 1_024;
const pieceBytesMin = 128;

export interface ReceiveLimits {
  bytesMax: number;
  stallMs: number;
}

export class ReceiveBudget {
  readonly #limits: ReceiveLimits;
  /** In the order of their last progress: the request that stalled first comes first. */
  readonly #open = new Set<Receiving>();
  #bytes = 0;

  constructor(limits: ReceiveLimits = { bytesMax, stallMs }) {
    this.#limits = limits;
  }

  /** Bytes that unfinished requests hold now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** `evict` ends the request when another one needs its room. */
  open(evict: (reason: DomainError) => void): Receiving {
    return new Receiving(this, evict);
  }

  /** Takes room for a piece, or throws `overloaded`. */
  take(receiving: Receiving, bytes: number): void {
    if (this.#bytes + bytes > this.#limits.bytesMax) this.#makeRoom(receiving, bytes);
    this.#bytes += bytes;
    this.#open.delete(receiving);
    this.#open.add(receiving);
  }

  give(receiving: Receiving, bytes: number): void {
    if (this.#open.delete(receiving)) this.#bytes -= bytes;
  }

  #makeRoom(asking: Receiving, bytes: number): void {
    const stalledBefore = performance.now() - this.#limits.stallMs;
    for (const other of this.#open) {
      if (other === asking) continue;
      if (other.progressAt > stalledBefore) break;
      other.evict(
        new DomainError('overloaded', 'the request stalled, and others need its room; send it again'),
      );
      if (this.#bytes + bytes <= this.#limits.bytesMax) return;
    }
    throw new DomainError('overloaded', 'too many large requests are being received; try again later');
  }
}

/** One request that is being received. */
export class Receiving {
  readonly #budget: ReceiveBudget;
  readonly #evict: (reason: DomainError) => void;
  #bytes = 0;
  #pieces = 0;
  #isClosed = false;
  /** When the last piece came, by `performance.now()`. */
  progressAt = 0;

  constructor(budget: ReceiveBudget, evict: (reason: DomainError) => void) {
    this.#budget = budget;
    this.#evict = evict;
  }

  /** Counts a piece of the request, or throws why the request is refused. */
  add(bytes: number): void {
    if (this.#isClosed) return;
    this.#budget.take(this, bytes);
    this.#bytes += bytes;
    this.#pieces += 1;
    this.progressAt = performance.now();
    if (this.#pieces > piecesFree && this.#bytes < this.#pieces * pieceBytesMin) throw tooManyPieces();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#budget.give(this, this.#bytes);
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

/** Whether a body that is thrown away arrives in pieces too small to be worth reading on. */
export const isTrickle = (pieces: number, bytes: number): boolean =>
  pieces > piecesFree && bytes < pieces * pieceBytesMin;

/** Of this process, for all of its faces. */
export const receiveBudget = new ReceiveBudget();
