/**
 * Lets what a call leaves behind be cleared away with it.
 *
 * Nearly all that is allocated here is dead within milliseconds, and V8 clears it away at next to no cost, as long as nothing
 * old names it. Two things did, and with unary calls two fifths of all memory was copied about, again and again, in a quarter
 * of the server's time:
 *
 * - Node keeps the streams of an HTTP/2 session in a `Map`. V8 gives a map a new table whenever the last is full of what was
 *   deleted, and a dead table goes on naming those who were in it and its successor. Behind one that has become old, all that
 *   follow stay alive until everything is looked through. Here a session gets a collection that has no such tables.
 * - V8 allocates among the old what has often become so. From such an object on the same begins anew, so it is asked not to.
 *
 * Both are only a matter of time. Where Node names its parts otherwise some day, they are left as they are.
 */
import { subscribe } from 'node:diagnostics_channel';
import type { ServerHttp2Stream } from 'node:http2';
import { setFlagsFromString } from 'node:v8';

/** Once for the process. */
let isDone = false;

export function lightenGarbage(): void {
  if (isDone) return;
  isDone = true;
  setFlagsFromString('--no-allocation-site-pretenuring');
  subscribe('http2.server.stream.created', (message) => {
    const { session } = (message as { stream: ServerHttp2Stream }).stream;
    if (session) lighten(session);
  });
}

/** Where Node keeps what it knows of a session. */
let stateOf: symbol | undefined;

function lighten(session: object): void {
  stateOf ??= Object.getOwnPropertySymbols(session).find(({ description }) => description === 'state');
  const state = stateOf && (session as Record<symbol, { streams?: unknown } | undefined>)[stateOf];
  if (!state || state.streams instanceof StreamsById) return;
  if (isMap(state.streams)) state.streams = new StreamsById(state.streams);
}

/** Node's own maps are of a class of their own. */
const isMap = (streams: unknown): streams is Map<number, unknown> =>
  Object.prototype.toString.call(streams) === '[object Map]';

/** A map in which the tables of an object serve, which name nobody who came after them. */
export class StreamsById<Stream> implements Map<number, Stream> {
  readonly [Symbol.toStringTag] = 'Map';
  #byId: Record<number, Stream> = Object.create(null);
  #size = 0;

  constructor(streams: Iterable<readonly [number, Stream]>) {
    for (const [id, stream] of streams) this.set(id, stream);
  }

  get size(): number {
    return this.#size;
  }

  get(id: number): Stream | undefined {
    return this.#byId[id];
  }

  has(id: number): boolean {
    return id in this.#byId;
  }

  set(id: number, stream: Stream): this {
    if (!this.has(id)) this.#size++;
    this.#byId[id] = stream;
    return this;
  }

  delete(id: number): boolean {
    if (!this.has(id)) return false;
    delete this.#byId[id];
    this.#size--;
    return true;
  }

  clear(): void {
    this.#byId = Object.create(null);
    this.#size = 0;
  }

  *entries(): MapIterator<[number, Stream]> {
    for (const id of this.keys()) yield [id, this.#byId[id] as Stream];
  }

  /** Of those that were there at first, as many as there still are. */
  *keys(): MapIterator<number> {
    for (const id of Object.keys(this.#byId).map(Number)) if (this.has(id)) yield id;
  }

  *values(): MapIterator<Stream> {
    for (const id of this.keys()) yield this.#byId[id] as Stream;
  }

  [Symbol.iterator](): MapIterator<[number, Stream]> {
    return this.entries();
  }

  forEach(each: (stream: Stream, id: number, map: Map<number, Stream>) => void, self?: unknown): void {
    for (const [id, stream] of this.entries()) each.call(self, stream, id, this);
  }
}
