/** Workers with a connection each, as the server sees it, that all lose it at once and come back at once. */
import { type Frame, framesOf } from './heartbeat-messages.ts';
import { HeartbeatStream, Losses } from './heartbeat-stream.ts';
import type { Lost } from './heartbeat-tasks.ts';
import type { LeaseSet } from './lease-set.ts';
import type { Link } from './link.ts';
import { pace, type Window } from './pace.ts';
import { type GrpcTarget, newLinks, nth } from './targets.ts';

export interface Reconnect {
  target: GrpcTarget;
  /** A worker has one of them. */
  set: LeaseSet;
  everyMs: number;
  /** How long they are connected before they lose their connections, and after they have come back. */
  beforeMs: number;
  afterMs: number;
  windowMs: number;
}

export interface Reconnected extends Lost {
  before: Window[];
  /** From the moment when the connections were lost. */
  after: Window[];
  /** Workers that did not hear, since they came back, that their lease goes on. */
  silent: number;
  /** Heartbeats that nobody answered. */
  unanswered: number;
}

/** Workers do not stay in step for ever. */
const jitter = 0.25;

class Workers {
  readonly #links: Link[];
  readonly #streams: HeartbeatStream[];
  readonly #frames: readonly Frame[];
  readonly #kept = new Set<number>();

  constructor(target: GrpcTarget, frames: readonly Frame[], losses: Losses) {
    this.#frames = frames;
    this.#links = newLinks(target);
    this.#streams = frames.map((_, i) => new HeartbeatStream(nth(this.#links, i), losses));
  }

  async beat(worker: number): Promise<number> {
    const extended = await nth(this.#streams, worker).beat(nth(this.#frames, worker));
    if (extended > 0) this.#kept.add(worker);
    return extended;
  }

  get silent(): number {
    return this.#frames.length - this.#kept.size;
  }

  drop(): void {
    for (const link of this.#links) link.close();
  }
}

export async function reconnect(on: Reconnect): Promise<Reconnected> {
  const losses = new Losses();
  const frames = framesOf(on.set);
  const everyMs = () => on.everyMs * (1 - jitter + 2 * jitter * Math.random());
  const run = (workers: () => Workers, durationMs: number, firstMs: (worker: number) => number) =>
    pace({
      count: frames.length,
      durationMs,
      windowMs: on.windowMs,
      firstMs,
      everyMs,
      act: (worker) => workers().beat(worker),
    });
  const first = new Workers(on.target, frames, losses);
  const before = await run(
    () => first,
    on.beforeMs,
    (worker) => (worker / frames.length) * on.everyMs,
  );
  // Everything from here on is in the time of the first window, with the connecting.
  let second: Workers | undefined;
  const back = () => {
    if (!second) {
      first.drop();
      second = new Workers(on.target, frames, losses);
    }
    return second;
  };
  const after = await run(back, on.afterMs, () => 0);
  const { silent } = back();
  back().drop();
  const unanswered = before.unanswered + after.unanswered;
  return { before: before.windows, after: after.windows, silent, unanswered, ...losses.take() };
}
