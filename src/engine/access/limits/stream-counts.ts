/**
 * Counts the open streams of each credential on this server, and refuses those beyond the limit.
 *
 * Guarantees: a credential without an open stream takes no memory.
 */
import type { Principal } from '../../../domain/access/principal.ts';
import { DomainError } from '../../../domain/errors.ts';

export class StreamCounts {
  readonly #max: number;
  readonly #open = new Map<string, number>();

  /** `max` streams for each credential without a limit of its own; 0 is no limit. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Counts a stream until the returned function is called. Throws `quota_exceeded` beyond the limit. */
  open({ kind, id, holder, limits }: Principal): () => void {
    const name = holder ?? `${kind} ${id}`;
    const used = this.#open.get(name) ?? 0;
    const max = limits.maxStreams ?? this.#max;
    if (max > 0 && used >= max)
      throw new DomainError(
        'quota_exceeded',
        `max_streams: ${used} of ${max} streams of the credential are open on this server`,
        { quota: { name: 'max_streams', subject: `credential:${id}`, limit: max, used } },
      );
    this.#open.set(name, used + 1);
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      const left = (this.#open.get(name) ?? 1) - 1;
      if (left > 0) this.#open.set(name, left);
      else this.#open.delete(name);
    };
  }

  /** The open streams of a credential. */
  of({ kind, id, holder }: Principal): number {
    return this.#open.get(holder ?? `${kind} ${id}`) ?? 0;
  }
}
