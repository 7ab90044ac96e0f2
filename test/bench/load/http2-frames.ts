/** The little of HTTP/2 (RFC 9113) and of its header compression (RFC 7541) that the lean client writes. */

export const frameType = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  window: 8,
} as const;
export const flag = { endStream: 0x1, ack: 0x1, endHeaders: 0x4 } as const;

export const headBytes = 9;
/** What every peer takes unless it said that it takes more. */
export const frameBytesMax = 16_384;
export const windowDefault = 65_535;
export const windowMax = 0x7fff_ffff;
export const initialWindowSetting = 4;
export const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

export function writeHead(into: Buffer, length: number, type: number, flags: number, stream: number): void {
  into.writeUIntBE(length, 0, 3);
  into[3] = type;
  into[4] = flags;
  into.writeUInt32BE(stream, 5);
}

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(headBytes + payload.length);
  writeHead(bytes, payload.length, type, flags, stream);
  bytes.set(payload, headBytes);
  return bytes;
}

export function windowUpdate(bytes: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(bytes);
  return frame(frameType.window, 0, 0, payload);
}

export function initialWindow(bytes: number): Buffer {
  const setting = Buffer.alloc(6);
  setting.writeUInt16BE(initialWindowSetting, 0);
  setting.writeUInt32BE(bytes, 2);
  return frame(frameType.settings, 0, 0, setting);
}

/** The headers of a gRPC call, with the stream's number left to be filled in: the last four bytes of the head. */
export function grpcHeaders(path: string, authority: string, key: string | undefined): Buffer {
  const block = Buffer.concat([
    // Entries 3 and 6 of the static table are 'POST' and 'http'; 4, 1, 31 and 23 are names.
    Buffer.from([0x83, 0x86]),
    Buffer.from([0x04]),
    literal(path),
    Buffer.from([0x01]),
    literal(authority),
    Buffer.from([0x0f, 31 - 0x0f]),
    literal('application/grpc'),
    Buffer.from([0x00]),
    literal('te'),
    literal('trailers'),
    ...(key === undefined ? [] : [Buffer.from([0x0f, 23 - 0x0f]), literal(`Bearer ${key}`)]),
  ]);
  return frame(frameType.headers, flag.endHeaders, 0, block);
}

/** A string of a header as it is; none here is as long as the 127 characters that one byte of length can tell. */
function literal(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text, 'latin1')]);
}
