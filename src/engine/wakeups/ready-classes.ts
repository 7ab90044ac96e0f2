import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import type { Database } from '../../store/database.ts';
import { anyCandidate } from '../../store/sql/queue/candidates.ts';
import type { HeadMarks } from '../../store/sql/queue/heads.ts';
import { readyStreams } from '../../store/sql/streams/ready.ts';
import type { RequestClass } from './wait-queue.ts';

/** A request class with its filter. */
export interface FilteredClass extends RequestClass {
  filter: ClaimFilter;
}

const budgetMs = 250;

/**
 * Finds the waiting request classes for which there are jobs, in case a notification was lost.
 *
 * One statement finds the streams that have jobs; classes of other streams cost nothing more. Each remaining
 * class takes one query of the queue, whose cost does not depend on the number of lanes. A sweep over many
 * classes ends when its time budget is used up; the next sweep continues after the last class that was
 * checked.
 */
export class ReadyClasses {
  readonly #options: { database: Database; lowWaterMarks: HeadMarks; budgetMs?: number };
  #last: string | undefined;

  constructor(options: { database: Database; lowWaterMarks: HeadMarks; budgetMs?: number }) {
    this.#options = options;
  }

  /** Streams of request classes for which there are jobs. */
  async find(classes: readonly FilteredClass[]): Promise<Set<string>> {
    const { database, lowWaterMarks } = this.#options;
    const until = performance.now() + (this.#options.budgetMs ?? budgetMs);
    const ready = new Set<string>();
    const waitedFor = new Set(classes.flatMap(({ streams }) => streams));
    if (waitedFor.size === 0) return ready;
    const maybe = await readyStreams(database, [...waitedFor]);
    const after = classes.findIndex(({ name }) => name === this.#last) + 1;
    this.#last = undefined;
    for (const { name, streams, filter } of [...classes.slice(after), ...classes.slice(0, after)]) {
      // One wakeup per stream is enough; a waiter that cannot use it passes it on.
      if (streams.every((stream) => ready.has(stream) || !maybe.has(stream))) continue;
      if (await anyCandidate(database, filter, lowWaterMarks))
        for (const stream of streams) ready.add(stream);
      if (performance.now() < until) continue;
      this.#last = name;
      break;
    }
    return ready;
  }
}
