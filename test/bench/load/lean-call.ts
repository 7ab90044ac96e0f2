/** What the lean client awaits on one HTTP/2 stream: one answer, or messages until the stream ends. */
import { grpcPrefixBytes, type StreamListener } from './link.ts';

export interface LeanCall {
  /** How much more, or less, than the initial window the server lets this stream send. */
  room: number;
  take(payload: Buffer): void;
  /** The server has ended it. */
  finish(): void;
  fail(error: Error): void;
}

const refusal = 'the server refused a call; --client grpc-js tells why';

export class UnaryCall implements LeanCall {
  room = 0;
  readonly #resolve: (answer: Buffer) => void;
  readonly #reject: (error: Error) => void;
  #body: Buffer | undefined;

  constructor(resolve: (answer: Buffer) => void, reject: (error: Error) => void) {
    this.#resolve = resolve;
    this.#reject = reject;
  }

  take(payload: Buffer): void {
    // The socket's buffer is not used again, so the answer may stay a view of it.
    this.#body = this.#body ? Buffer.concat([this.#body, payload]) : payload;
  }

  finish(): void {
    if (this.#body && this.#body.length >= grpcPrefixBytes)
      this.#resolve(this.#body.subarray(grpcPrefixBytes));
    else this.fail(new Error(refusal));
  }

  fail(error: Error): void {
    this.#reject(error);
  }
}

/** A stream that its client never ends, so whoever ends it ends it too early. */
export class StreamingCall implements LeanCall {
  room = 0;
  readonly #listener: StreamListener;
  #rest: Buffer | undefined;

  constructor(listener: StreamListener) {
    this.#listener = listener;
  }

  take(payload: Buffer): void {
    const all = this.#rest ? Buffer.concat([this.#rest, payload]) : payload;
    let at = 0;
    while (at + grpcPrefixBytes <= all.length) {
      const end = at + grpcPrefixBytes + all.readUInt32BE(at + 1);
      if (end > all.length) break;
      this.#listener.message(all.subarray(at + grpcPrefixBytes, end));
      at = end;
    }
    this.#rest = at < all.length ? all.subarray(at) : undefined;
  }

  finish(): void {
    this.fail(new Error('the server ended a stream; --client grpc-js tells why'));
  }

  fail(error: Error): void {
    this.#listener.ended(error);
  }
}
