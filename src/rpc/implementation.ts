import type { DescMethod, DescService, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { Caller } from '../engine/context/engine-context.ts';
import type { EncodedMessage } from './jobs/encode.ts';

/**
 * A service's methods, free of any transport: a decoded request and its caller in, a response out, which may be
 * encoded already. `rpc/grpc/server.ts` and `rpc/connect/handler.ts` bind the same implementation to their wires.
 */
export type Implementation<Service extends DescService> = {
  [Name in keyof Service['method']]: Method<Service['method'][Name]>;
};

export type Method<Desc extends DescMethod> = Desc extends { methodKind: 'bidi_streaming' }
  ? OpenStream
  : Desc extends { methodKind: 'server_streaming' }
    ? (
        request: MessageShape<Desc['input']>,
        caller: Caller,
      ) => AsyncIterable<MessageInitShape<Desc['output']>>
    : (
        request: MessageShape<Desc['input']>,
        caller: Caller,
      ) => Promise<MessageInitShape<Desc['output']> | EncodedMessage>;

/**
 * A bidirectional stream is pushed to its session frame by frame, as bytes, and the session says when it wants more. An
 * async iterator would cost a frame several promises, and could not hold back the frames that come meanwhile.
 */
export type OpenStream = (stream: FrameStream, caller: Caller) => FrameSession;

/** What a session can do with its stream. */
export interface FrameStream {
  /** Asks for one more frame, or for the end. The first is asked for already. */
  read(): void;
  /** Sends a frame. `onSent` is called when it has left for the client, which is when the client has room for it. */
  send(frame: Buffer, onSent: () => void): void;
  /** Ends the stream after everything that was sent: well, or with an error. */
  end(error?: unknown): void;
}

/** What happens on a stream. After `onGone`, and after the session has ended it, nothing does. */
export interface FrameSession {
  onFrame(frame: Buffer): void;
  /** The client sends no more, and waits for the rest of the answers. */
  onEnd(): void;
  /** The client, the connection or the deadline has cut the stream off. */
  onGone(): void;
}

/** A service and how it is implemented. */
export interface Binding<Service extends DescService = DescService> {
  service: Service;
  implementation: Implementation<Service>;
}
