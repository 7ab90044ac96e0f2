/**
 * Where callers wait for work, in the order in which they came.
 *
 * Promises: whoever waits is let go when there may be something for them, when their time is over, or when they have
 * gone. A job that comes wakes no more than one of each kind that asks for its stream, and nobody else; room that comes
 * wakes those who lacked it. How many find a place in the room is known to nobody, so one of them that got something
 * wakes two more: what came free is found without waking a herd. Being woken means 'ask again'; who asks in vain comes back to their old place. Every `sweepMs` it is
 * asked once which streams have jobs at all, and one of each kind for those is woken, in case a message was lost: who
 * waits for what is not there costs nothing.
 *
 * Nothing is lost on those who are asking while something comes, and may have looked just before it did: as many of
 * them as there was nobody else to wake for do not wait, but ask again. Who was woken and leaves without having asked
 * wakes the next.
 *
 * It holds no timer while nobody waits. `stop` lets everybody go.
 */
import type { Work } from './work.ts';

const sweepMs = 2_000;
/** Whom one that got something wakes. */
const wakesWhenServed = 2;

/** Callers who ask for the same. */
export interface Kind {
  /** All that they ask for, as one text. */
  readonly name: string;
  /** The streams whose jobs would do; the empty one stands for none. */
  readonly streams: readonly string[];
}

/** Somebody's place in the line, from before they ask for the first time until they leave. */
export interface Place {
  readonly line: Line;
  readonly number: number;
  /** Lets them go; undefined while they ask. */
  wake: (() => void) | undefined;
  /** What they were woken for; whoever asks for them takes it back when that is answered. */
  called: Want | undefined;
}

/** What somebody waits for, or was woken for. */
export type Want = 'jobs' | 'room';

interface Line {
  readonly kind: Kind;
  /** Those who wait, by their numbers. */
  waiting: Place[];
  /** How many have a place, waiting or asking. */
  places: number;
  /** For so much that came there was nobody to wake, and what it was. */
  missed: number;
  missedWhat: Want;
}

export interface WaitingLineOptions {
  /** Which streams have jobs that may be taken now. */
  findReady(): Promise<Iterable<string>>;
}

export class WaitingLine {
  readonly #findReady: WaitingLineOptions['findReady'];
  readonly #lines = new Map<string, Line>();
  readonly #byStream = new Map<string, Set<Line>>();
  /** Lines whose last answer was that there is no room. */
  readonly #cramped = new Set<Line>();
  /** Lines some of which are asking. */
  readonly #asking = new Set<Line>();
  #length = 0;
  #lastNumber = 0;
  #sweep: NodeJS.Timeout | undefined;
  #sweeping = false;
  #stopped = false;

  constructor({ findReady }: WaitingLineOptions) {
    this.#findReady = findReady;
  }

  /** How many wait. */
  get length(): number {
    return this.#length;
  }

  /** Takes a place, which has to be left. */
  join(kind: Kind): Place {
    const line = this.#lines.get(kind.name) ?? this.#open(kind);
    line.places++;
    this.#asking.add(line);
    return { line, number: ++this.#lastNumber, wake: undefined, called: undefined };
  }

  /** Leaves for good, with something or without. */
  leave({ line, called }: Place, served: boolean): void {
    line.places--;
    this.#noteAsking(line);
    line.missed = Math.min(line.missed, askingIn(line));
    if (!served && called) this.#wakeLine(line, 1, called);
    // Of jobs as many were woken as there are.
    else if (served && called !== 'jobs') this.#wakeLine(line, wakesWhenServed, 'room');
    if (line.places === 0) this.#close(line);
  }

  /** Waits to be woken, for so long at the most, after having asked in vain: for want of jobs, or of room for them. */
  wait(place: Place, ms: number, wants: Want, signal?: AbortSignal): Promise<void> {
    const { line } = place;
    if (wants === 'room') this.#cramped.add(line);
    else this.#cramped.delete(line);
    if (this.#stopped || signal?.aborted) return Promise.resolve();
    if (line.missed > 0) {
      line.missed--;
      place.called = line.missedWhat;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const letGo = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', letGo);
        place.wake = undefined;
        line.waiting.splice(line.waiting.indexOf(place), 1);
        this.#length--;
        this.#noteAsking(line);
        this.#rest();
        resolve();
      };
      const timer = setTimeout(letGo, ms);
      signal?.addEventListener('abort', letGo, { once: true });
      place.wake = letGo;
      // Most are new and go to the end.
      const before = line.waiting.findLastIndex(({ number }) => number < place.number);
      line.waiting.splice(before + 1, 0, place);
      this.#length++;
      this.#noteAsking(line);
      this.#sweep ??= setInterval(() => void this.#sweepOnce(), sweepMs);
    });
  }

  /** Something has come that may concern those who wait. */
  wakeFor({ jobs, room }: Work): void {
    for (const [stream, count] of jobs) this.#wakeStream(stream, count);
    if (room === 0) return;
    for (const line of new Set([...this.#cramped, ...this.#asking])) this.#wakeLine(line, room, 'room');
  }

  stop(): void {
    this.#stopped = true;
    for (const line of [...this.#lines.values()]) wakeFirst(line, Number.POSITIVE_INFINITY, 'room');
  }

  #open(kind: Kind): Line {
    const line: Line = { kind, waiting: [], places: 0, missed: 0, missedWhat: 'jobs' };
    this.#lines.set(kind.name, line);
    for (const stream of kind.streams) {
      const lines = this.#byStream.get(stream) ?? new Set();
      this.#byStream.set(stream, lines.add(line));
    }
    return line;
  }

  #close(line: Line): void {
    this.#lines.delete(line.kind.name);
    this.#cramped.delete(line);
    for (const stream of line.kind.streams) {
      const lines = this.#byStream.get(stream);
      lines?.delete(line);
      if (lines?.size === 0) this.#byStream.delete(stream);
    }
  }

  #wakeStream(stream: string, count: number): void {
    for (const line of [...(this.#byStream.get(stream) ?? [])]) this.#wakeLine(line, count, 'jobs');
  }

  #wakeLine(line: Line, count: number, what: Want): void {
    const woken = wakeFirst(line, count, what);
    // Where both were missed, whoever asks for room finds the jobs as well.
    if (woken < count) line.missedWhat = line.missed > 0 && line.missedWhat === 'room' ? 'room' : what;
    line.missed = Math.min(line.missed + count - woken, askingIn(line) - woken);
  }

  #noteAsking(line: Line): void {
    if (askingIn(line) > 0) this.#asking.add(line);
    else this.#asking.delete(line);
  }

  async #sweepOnce(): Promise<void> {
    if (this.#sweeping) return;
    this.#sweeping = true;
    try {
      for (const stream of await this.#findReady()) {
        for (const line of [...(this.#byStream.get(stream) ?? [])]) wakeFirst(line, 1, 'room');
      }
    } catch {
      // The database is away. Who waits would hear of that from asking, and it will be asked again.
    } finally {
      this.#sweeping = false;
    }
  }

  #rest(): void {
    if (this.#length > 0) return;
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }
}

const askingIn = ({ places, waiting }: Line): number => places - waiting.length;

function wakeFirst({ waiting }: Line, count: number, what: Want): number {
  const first = waiting.slice(0, count);
  for (const place of first) {
    place.called = what;
    place.wake?.();
  }
  return first.length;
}
