/**
 * Counts gRPC messages that are still being received against the receive budget, and decompresses them in
 * turn.
 *
 * grpc-js keeps the parts of an unfinished message in its decoder and does not bound their sum. Each of a
 * thousand streams of a connection may hold up to the largest message. A call that takes a single message is
 * not served before its client has ended its side, so its complete message counts until then. Time in which
 * grpc-js has paused the stream because the server does not read on does not count against the client.
 *
 * The decoder has no public hook, so methods of two prototypes are wrapped once. A message that is complete
 * after one part, which is nearly every message, costs one comparison.
 */
import { constants } from 'node:http2';
import type { ServerInterceptingCallInterface } from '@grpc/grpc-js';
import { DomainError } from '../../domain/errors.ts';
import { decompressInTurn } from '../../lib/http/decompression.ts';
import type { ReceiveBudget, Receiving } from '../../lib/http/receive-budget.ts';
import { toConnectError } from '../errors.ts';
import { statusOf } from './status.ts';

/**
 * The private parts of grpc-js that this module uses. `test/server/hostile-load.test.ts` fails if they
 * change.
 */
interface Decoder {
  write(data: Buffer): Buffer[];
  maxReadMessageLength: number;
  readMessageSize: number;
  readMessageRemaining: number;
  readPartialMessage: Buffer[];
  /** Set by this module. */
  owner?: Owner;
  receiving?: Receiving | undefined;
  /** The held bytes are released when the stream ends or closes. */
  isReleasedAtEnd?: boolean;
}

interface Owner {
  decoder: Decoder;
  stream: {
    once(event: 'close' | 'end' | 'finish', listener: () => void): unknown;
    close(code: number): void;
    readableEnded: boolean;
    headersSent: boolean;
    isPaused(): boolean;
  };
  maxReceiveMessageSize: number;
  decompressMessage(message: Buffer, encoding: string): Buffer | Promise<Buffer>;
  sendStatus: ServerInterceptingCallInterface['sendStatus'];
  /** Set by this module. */
  budget?: ReceiveBudget;
  takesOneMessage?: boolean;
}

/** How long a client has to read why its stream ends. */
const lastWordsMs = 1_000;

const wrapped = new WeakSet<object>();

export function boundReceiving(
  call: ServerInterceptingCallInterface,
  budget: ReceiveBudget,
  takesOneMessage: boolean,
): void {
  const owner = call as unknown as Owner;
  const { decoder } = owner;
  owner.budget = budget;
  owner.takesOneMessage = takesOneMessage;
  decoder.owner = owner;
  const prototype = Object.getPrototypeOf(decoder) as Decoder;
  if (wrapped.has(prototype)) return;
  wrapped.add(prototype);
  wrapWrite(prototype);
  wrapDecompress(Object.getPrototypeOf(owner) as Owner);
}

/** Refuses messages that are longer than this, before they are received. */
export function boundMessages(call: ServerInterceptingCallInterface, bytesMax: number): void {
  const owner = call as unknown as Owner;
  if (owner.decoder.maxReadMessageLength === undefined || owner.maxReceiveMessageSize === undefined)
    throw new Error('this version of grpc-js bounds its messages elsewhere');
  owner.decoder.maxReadMessageLength = bytesMax;
  owner.maxReceiveMessageSize = bytesMax;
}

function wrapWrite(prototype: Decoder): void {
  const { write } = prototype;
  prototype.write = function (this: Decoder, data: Buffer): Buffer[] {
    const messages = write.call(this, data);
    if (messages.length > 0 && this.receiving && this.owner?.takesOneMessage !== true) release(this);
    // A piece that completes a message may begin the next one.
    if (this.readMessageRemaining > 0)
      hold(this, Math.min(data.length, this.readMessageSize - this.readMessageRemaining));
    return messages;
  };
}

function wrapDecompress(prototype: Owner): void {
  const { decompressMessage } = prototype;
  prototype.decompressMessage = function (this: Owner, packed: Buffer, encoding: string) {
    if (encoding === 'identity') return decompressMessage.call(this, packed, encoding);
    return decompressInTurn(async () => {
      const message = await decompressMessage.call(this, packed, encoding);
      if (this.takesOneMessage && !this.stream.readableEnded) hold(this.decoder, message.length);
      return message;
    });
  };
}

function hold(decoder: Decoder, bytes: number): void {
  const { owner } = decoder;
  if (!owner?.budget) return;
  if (!decoder.receiving) {
    const { budget, stream } = owner;
    decoder.receiving = budget.open(
      (reason) => {
        release(decoder);
        end(owner, reason);
      },
      () => stream.isPaused(),
    );
    if (!decoder.isReleasedAtEnd)
      for (const event of ['end', 'close'] as const) stream.once(event, () => release(decoder));
    decoder.isReleasedAtEnd = true;
  }
  try {
    decoder.receiving.add(bytes);
  } catch (error) {
    release(decoder);
    if (!(error instanceof DomainError)) throw error;
    end(owner, error);
  }
}

function release(decoder: Decoder): void {
  decoder.receiving?.close();
  decoder.receiving = undefined;
}

/**
 * Sends the reason and then closes the stream. The received bytes would otherwise stay in memory until the
 * client ends its side.
 */
function end(owner: Owner, reason: DomainError): void {
  const { stream, decoder } = owner;
  const close = () => stream.close(constants.NGHTTP2_NO_ERROR);
  // HTTP/2 drops trailers that are not sent yet when the stream is closed.
  if (stream.headersSent) setTimeout(close, lastWordsMs).unref();
  else stream.once('finish', close);
  owner.sendStatus(statusOf(toConnectError(reason)));
  decoder.readPartialMessage = [];
}
