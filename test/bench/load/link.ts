/** One gRPC connection: bytes in, bytes out. */
export interface Link {
  call(path: string, message: Buffer): Promise<Buffer>;
  /** Opens a stream in both directions. Nobody ends it but the server, or whoever closes the connection. */
  open(path: string, listener: StreamListener): MessageStream;
  /** Breaks the connection off; whatever is under way on it fails. */
  close(): void;
}

export interface StreamListener {
  message(bytes: Buffer): void;
  /** At most once, and nothing comes afterwards. */
  ended(error: Error): void;
}

export interface MessageStream {
  /**
   * Sends a message made by `withHeadroom`. The same one may be sent again and again, and at the same time, but only on
   * one stream until all of it has left.
   */
  send(message: Buffer): void;
}

/** The parts of `host:port`, or of `key@host:port` where the server asks for keys. */
export function partsOf(address: string): { authority: string; key: string | undefined } {
  const at = address.indexOf('@');
  return at < 0
    ? { authority: address, key: undefined }
    : { authority: address.slice(at + 1), key: address.slice(0, at) };
}

export const grpcPrefixBytes = 5;
/** The head that gRPC puts before a message, and before that the one that HTTP/2 puts before a frame. */
export const headroomBytes = 9 + grpcPrefixBytes;

/** A message behind room for the heads it is sent with, so that sending it copies nothing. */
export function withHeadroom(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(headroomBytes + message.length);
  // It is not compressed.
  bytes[headroomBytes - grpcPrefixBytes] = 0;
  bytes.writeUInt32BE(message.length, headroomBytes - 4);
  bytes.set(message, headroomBytes);
  return bytes;
}

/** `lean` costs the machine next to nothing; `grpc-js` is what programs in JavaScript really use. */
export const clients = ['lean', 'grpc-js'] as const;
export type ClientKind = (typeof clients)[number];
