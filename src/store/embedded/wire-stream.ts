import { Duplex } from 'node:stream';

/** The path from a stream to the worker thread. */
export interface WirePort {
  /** Set when the database has stopped or is closing; it rejects new connections. */
  readonly refusal: Error | undefined;
  send(session: number, bytes: Uint8Array<ArrayBuffer>): void;
  end(session: number): void;
}

/**
 * Replaces the TCP socket of the `pg` driver: one connection to the embedded PostgreSQL.
 *
 * Bytes written go to the worker thread in one message per batch: statements of one turn are corked, and form
 * one message. The worker's answers are pushed to the reader. The stream starts with `connect`, which the
 * driver calls, and ends when either side ends it. If the database stops, the stream is destroyed with the
 * reason, and the driver rejects what waits on it.
 */
export class WireStream extends Duplex {
  readonly #port: WirePort;
  readonly #session: number;

  constructor(port: WirePort, session: number) {
    super();
    this.#port = port;
    this.#session = session;
  }

  /** Ignores host and port, which the driver passes. */
  connect(): this {
    process.nextTick(() => {
      const refusal = this.#port.refusal;
      if (refusal) this.destroy(refusal);
      else this.emit('connect');
    });
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  override _read(): void {
    // Answers are pushed as they arrive: the driver sends one query at a time and reads its whole answer.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this._writev([{ chunk }], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    // Copies once into new memory: the driver reuses its buffers, and only whole buffers can be transferred.
    const bytes = new Uint8Array(chunks.reduce((sum, { chunk }) => sum + chunk.length, 0));
    let at = 0;
    for (const { chunk } of chunks) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    this.#port.send(this.#session, bytes);
    done();
  }

  override _final(done: () => void): void {
    this.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#port.end(this.#session);
    done(error);
  }
}
