/**
 * Where callers wait for work, in the order in which they came.
 *
 * Promises: whoever waits is let go when there may be something for them, when their time is over, or when they have
 * gone. For every job that comes no more than one of each kind is woken, and one that got something wakes two more, so
 * that units that came free are found without waking a herd. Being woken means 'ask again'; who asks in vain comes back
 * to their old place. Every `sweepMs` one of each kind is woken for nothing, in case a message was lost.
 *
 * Nothing is lost on those who are asking while something comes, and may have looked just before it did: as many of
 * them as there was nobody else to wake for do not wait, but ask again. Who was woken and leaves without having asked
 * wakes the next.
 *
 * It holds no timer while nobody waits. `stop` lets everybody go.
 */
const sweepMs = 2_000;
/** Whom one that got something wakes. */
const wakesWhenServed = 2;

/** Somebody's place in the line, from before they ask for the first time until they leave. */
export interface Place {
  readonly kind: string;
  readonly number: number;
  /** Lets them go; undefined while they ask. */
  wake: (() => void) | undefined;
  /** They were woken for something; whoever asks for them takes it back when that is answered. */
  called: boolean;
}

interface Line {
  /** Those who wait, by their numbers. */
  waiting: Place[];
  /** How many have a place, waiting or asking. */
  places: number;
  /** For so much that came there was nobody to wake. */
  missed: number;
}

export class WaitingLine {
  readonly #lines = new Map<string, Line>();
  #lastNumber = 0;
  #sweep: NodeJS.Timeout | undefined;
  #stopped = false;

  /** How many wait. */
  get length(): number {
    let all = 0;
    for (const { waiting } of this.#lines.values()) all += waiting.length;
    return all;
  }

  /** Takes a place, which has to be left. */
  join(kind: string): Place {
    const line = this.#lines.get(kind) ?? { waiting: [], places: 0, missed: 0 };
    this.#lines.set(kind, line);
    line.places++;
    return { kind, number: ++this.#lastNumber, wake: undefined, called: false };
  }

  /** Leaves for good, with something or without. */
  leave({ kind, called }: Place, served: boolean): void {
    const line = this.#lines.get(kind);
    if (!line) return;
    line.places--;
    line.missed = Math.min(line.missed, askingIn(line));
    if (served) this.wakeKind(kind, wakesWhenServed);
    else if (called) this.wakeKind(kind, 1);
    if (line.places === 0) this.#lines.delete(kind);
  }

  /** Waits to be woken, for so long at the most, after having asked in vain. */
  wait(place: Place, ms: number, signal?: AbortSignal): Promise<void> {
    const line = this.#lines.get(place.kind);
    if (!line || this.#stopped || signal?.aborted) return Promise.resolve();
    if (line.missed > 0) {
      line.missed--;
      place.called = true;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const letGo = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', letGo);
        place.wake = undefined;
        line.waiting.splice(line.waiting.indexOf(place), 1);
        this.#rest();
        resolve();
      };
      const timer = setTimeout(letGo, ms);
      signal?.addEventListener('abort', letGo, { once: true });
      place.wake = letGo;
      // Most are new and go to the end.
      const before = line.waiting.findLastIndex(({ number }) => number < place.number);
      line.waiting.splice(before + 1, 0, place);
      this.#sweep ??= setInterval(() => this.#wakeWaiting(1), sweepMs);
    });
  }

  /** So many jobs have come, or something else has changed that may concern so many of every kind. */
  wakeAll(count: number): void {
    for (const kind of [...this.#lines.keys()]) this.wakeKind(kind, count);
  }

  wakeKind(kind: string, count: number): void {
    const line = this.#lines.get(kind);
    if (!line) return;
    const woken = wakeFirst(line, count);
    line.missed = Math.min(line.missed + count - woken, askingIn(line) - woken);
  }

  stop(): void {
    this.#stopped = true;
    this.#wakeWaiting(Number.POSITIVE_INFINITY);
  }

  #wakeWaiting(count: number): void {
    for (const line of [...this.#lines.values()]) wakeFirst(line, count);
  }

  #rest(): void {
    if (this.length > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }
}

const askingIn = ({ places, waiting }: Line): number => places - waiting.length;

function wakeFirst({ waiting }: Line, count: number): number {
  const first = waiting.slice(0, count);
  for (const place of first) {
    place.called = true;
    place.wake?.();
  }
  return first.length;
}
