import type { DescMethod, DescService, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { Caller } from '../engine/context/engine-context.ts';
import type { EncodedMessage } from './jobs/encode.ts';

/**
 * A service's methods, independent of the protocol: they take a decoded request and its caller, and return a
 * response, which may be encoded already. `rpc/grpc/server.ts` and `rpc/connect/handler.ts` bind the same
 * implementation to their protocols.
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
 * The stream pushes frames to its session one by one, as bytes, when the session requests them. An async
 * iterator would cost several promises for each frame, and could not hold back further frames.
 */
export type OpenStream = (stream: FrameStream, caller: Caller) => FrameSession;

/** What a session can do with its stream. */
export interface FrameStream {
  /** Requests one more frame, or the end. The first frame is requested already. */
  read(): void;
  /**
   * Sends a frame. `onSent` is called when the frame has left, which is when the client has capacity for it.
   */
  send(frame: Buffer, onSent: () => void): void;
  /** Ends the stream after all sent frames: with OK, or with an error. */
  end(error?: unknown): void;
}

/** The events of a stream. None follows `onGone`, or the end that the session has requested. */
export interface FrameSession {
  onFrame(frame: Buffer): void;
  /** The client has ended its side, and waits for the remaining answers. */
  onEnd(): void;
  /** The connection is about to end: the client should go on over another one. */
  onLeave(): void;
  /** The server, or the connection, ends now. The session answers what it has read and ends its stream. */
  onServerStops(): void;
  /** The client, the connection or the deadline has cancelled the stream. */
  onGone(): void;
}

/** A service and its implementation. */
export interface Binding<Service extends DescService = DescService> {
  service: Service;
  implementation: Implementation<Service>;
}
