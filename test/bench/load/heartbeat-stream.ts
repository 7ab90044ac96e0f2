import type { LeaseVerdict } from '../../../gen/leasehold/v1/leases_pb.js';
import {
  checkVerdicts,
  type Frame,
  paths,
  readVerdicts,
  type VerdictListener,
} from './heartbeat-messages.ts';
import type { LeaseSet } from './lease-set.ts';
import type { Link, MessageStream } from './link.ts';

/** Leases that were lost, on all the streams that tell of them. */
export class Losses {
  #count = 0;
  #first: string | undefined;

  note({ leaseId, outcome }: LeaseVerdict): void {
    this.#count++;
    this.#first ??=
      outcome.case === 'lost'
        ? `${leaseId}: ${outcome.value.code}, ${outcome.value.detail}`
        : `${leaseId}: ?`;
  }

  /** What was lost since the last time this was asked. */
  take(): { lost: number; firstLost: string | undefined } {
    const taken = { lost: this.#count, firstLost: this.#first };
    this.#count = 0;
    this.#first = undefined;
    return taken;
  }
}

interface Awaited {
  left: number;
  extended: number;
  resolve(extended: number): void;
  reject(error: Error): void;
}

/**
 * A stream of heartbeats. Open from its construction; `beat` sends a frame and answers, once there have been as many
 * verdicts, with how many of them extended a lease.
 *
 * Verdicts are counted towards the oldest frame that lacks some. The server may mix the answers to two frames that are
 * under way at the same time; then each of them counts as answered a little early or late, and the sum is right.
 */
export class HeartbeatStream {
  readonly #stream: MessageStream;
  readonly #verdicts: VerdictListener;
  readonly #awaited: Awaited[] = [];
  #ended: Error | undefined;
  /** All that comes, while somebody wants to look at it. */
  #collected: Buffer[] | undefined;

  constructor(link: Link, losses: Losses) {
    this.#verdicts = {
      extended: () => this.#count(1),
      lost: (verdict) => {
        losses.note(verdict);
        this.#count(0);
      },
    };
    this.#stream = link.open(paths.streamHeartbeats, {
      message: (bytes) => this.#receive(bytes),
      ended: (error) => this.#end(error),
    });
  }

  beat({ message, leases }: Frame): Promise<number> {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#awaited.push({ left: leases, extended: 0, resolve, reject });
      this.#stream.send(message);
    });
  }

  /** Sends a frame while no other is under way, and throws where its verdicts are not in every detail as they should be. */
  async beatChecked(frame: Frame, set: LeaseSet): Promise<void> {
    this.#collected = [];
    await this.beat(frame);
    const answers = this.#collected;
    this.#collected = undefined;
    checkVerdicts(answers, frame, set);
  }

  #receive(bytes: Buffer): void {
    this.#collected?.push(bytes);
    try {
      readVerdicts(bytes, this.#verdicts);
    } catch (error) {
      this.#end(error as Error);
    }
  }

  #count(extended: number): void {
    const oldest = this.#awaited[0];
    // A verdict that nobody asked for, on a lease that was lost meanwhile.
    if (!oldest) return;
    oldest.extended += extended;
    if (--oldest.left > 0) return;
    this.#awaited.shift();
    oldest.resolve(oldest.extended);
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const { reject } of this.#awaited.splice(0)) reject(this.#ended);
  }
}
