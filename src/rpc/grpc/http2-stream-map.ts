/**
 * Lets what a call leaves behind be cleared away with it.
 *
 * Nearly all that is allocated here is dead within milliseconds, and V8 clears it away at next to no cost, as long as nothing
 * old names it. But Node keeps the streams of an HTTP/2 session in a `Map`. V8 gives a map a new table whenever the last is
 * full of what was deleted, and a dead table goes on naming those who were in it and the table that came next. Behind one
 * that has become old, all that follow stay alive until everything is looked through: with unary calls two fifths of all
 * memory was copied about, again and again, in a fifth of the server's time. So sessions get a collection that has no
 * such tables. It helps only together with the flag `--no-allocation-site-pretenuring`, without which V8 allocates among
 * the old what has often become so, and the same begins from there.
 *
 * What is replaced is Node's own. It is only a matter of time, so with a Node that nobody has looked at it is left as it is.
 */
import { subscribe } from 'node:diagnostics_channel';

/** The major versions of which it is known what they ask of a session's streams. */
const lookedAt = { from: 22, to: 26 };

/** Once for the process. */
let isDone = false;

export function replaceSessionStreams(): void {
  const major = Number.parseInt(process.versions.node, 10);
  if (isDone || major < lookedAt.from || major > lookedAt.to) return;
  isDone = true;
  subscribe('http2.server.stream.created', (message) => {
    const session = (message as { stream?: { session?: object } } | undefined)?.stream?.session;
    if (session) replaceIn(session);
  });
}

/** Under which Node keeps what it knows of a session. */
let stateKey: symbol | undefined;

function replaceIn(session: object): void {
  stateKey ??= Object.getOwnPropertySymbols(session).find(({ description }) => description === 'state');
  const state = stateKey && (session as Record<symbol, { streams?: unknown } | undefined>)[stateKey];
  if (!state || state.streams instanceof SessionStreams) return;
  if (isMap(state.streams)) state.streams = new SessionStreams(state.streams);
}

/** Node's own maps are of a class of their own. */
const isMap = (streams: unknown): streams is Map<number, unknown> =>
  Object.prototype.toString.call(streams) === '[object Map]';

/**
 * A map of streams by their numbers, in two lists in the order of the numbers. A client may only count upwards, so that what
 * is new goes to the end. Where few are open, one comes and goes in 0.05 µs, as in a `Map`; the oldest of a thousand, which
 * are as many as we let there be, goes in 0.9 µs.
 */
export class SessionStreams<Stream> implements Map<number, Stream> {
  readonly [Symbol.toStringTag] = 'Map';
  readonly #ids: number[] = [];
  readonly #streams: Stream[] = [];

  constructor(streams: Iterable<readonly [number, Stream]>) {
    for (const [id, stream] of streams) this.set(id, stream);
  }

  get size(): number {
    return this.#ids.length;
  }

  get(id: number): Stream | undefined {
    const at = this.#placeOf(id);
    return this.#ids[at] === id ? this.#streams[at] : undefined;
  }

  has(id: number): boolean {
    return this.#ids[this.#placeOf(id)] === id;
  }

  set(id: number, stream: Stream): this {
    const at = this.#placeOf(id);
    if (this.#ids[at] === id) this.#streams[at] = stream;
    else if (at === this.#ids.length) {
      this.#ids.push(id);
      this.#streams.push(stream);
    } else {
      this.#ids.splice(at, 0, id);
      this.#streams.splice(at, 0, stream);
    }
    return this;
  }

  delete(id: number): boolean {
    const at = this.#placeOf(id);
    if (this.#ids[at] !== id) return false;
    this.#ids.splice(at, 1);
    this.#streams.splice(at, 1);
    return true;
  }

  clear(): void {
    this.#ids.length = 0;
    this.#streams.length = 0;
  }

  /** Of those that are there at first, as many as still are when it is their turn. */
  *keys(): MapIterator<number> {
    for (const id of [...this.#ids]) if (this.has(id)) yield id;
  }

  *entries(): MapIterator<[number, Stream]> {
    for (const id of this.keys()) yield [id, this.get(id) as Stream];
  }

  *values(): MapIterator<Stream> {
    for (const id of this.keys()) yield this.get(id) as Stream;
  }

  [Symbol.iterator](): MapIterator<[number, Stream]> {
    return this.entries();
  }

  forEach(each: (stream: Stream, id: number, map: Map<number, Stream>) => void, self?: unknown): void {
    for (const [id, stream] of this.entries()) each.call(self, stream, id, this);
  }

  /** Where it is, or would have to be put. */
  #placeOf(id: number): number {
    const ids = this.#ids;
    let [from, to] = [0, ids.length];
    if (to === 0 || (ids[to - 1] as number) < id) return to;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if ((ids[middle] as number) < id) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
