import { Duplex } from 'node:stream';

/** The way from a stream to the worker thread. */
export interface WirePort {
  /** Set once the database is gone or closing; new connections are refused with it. */
  readonly refusal: Error | undefined;
  send(session: number, bytes: Uint8Array<ArrayBuffer>): void;
  end(session: number): void;
}

/**
 * What the `pg` driver takes for its TCP socket: one connection to the embedded PostgreSQL. Bytes written go to the
 * worker thread in one message per batch (what is asked in one turn is corked, and is one message), and what the
 * worker answers is read. It starts with `connect`, which the driver calls, and ends when either side ends it. When
 * the database goes away it is destroyed with the reason, and the driver rejects what was waiting on it.
 */
export class WireStream extends Duplex {
  readonly #port: WirePort;
  readonly #session: number;

  constructor(port: WirePort, session: number) {
    super();
    this.#port = port;
    this.#session = session;
  }

  /** Host and port, which the driver passes, mean nothing here. */
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
    // Answers are pushed as they come: the driver asks for one at a time and reads it whole.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this._writev([{ chunk }], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    // Copied once into memory of their own: the driver reuses its buffers, and only whole buffers can be handed over.
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
