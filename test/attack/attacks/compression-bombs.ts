/** Small bodies in gzip that are large, or beyond every limit, once they are decompressed. */
import { gzipSync } from 'node:zlib';
import { type Attack, enveloped, flags, flood, frame, grpcBlock, Peer, type } from '../wire.ts';

const MiB = 1024 * 1024;
const [allowed, beyond] = [15, 200].map((size) => gzipSync(Buffer.alloc(size * MiB, 0x20), { level: 9 })) as [
  Buffer,
  Buffer,
];

const post = (path: string, body: Buffer) =>
  Buffer.concat([
    Buffer.from(
      `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n` +
        `content-encoding: gzip\r\ncontent-length: ${body.length}\r\n\r\n`,
    ),
    body,
  ]);
const requests = [allowed, beyond].flatMap((body) => [
  post('/api/scheduler/jobs/submit', body),
  post('/leasehold.v1.JobsService/SubmitJobs', body),
]);
const block = grpcBlock('/leasehold.v1.JobsService/SubmitJobs', [['grpc-encoding', 'gzip']]);
const piece = 16_384;

function grpcCall(peer: Peer, body: Buffer): Buffer {
  const stream = peer.nextStream();
  const bytes = enveloped(body, true);
  const frames = [frame(type.headers, flags.endHeaders, stream, block)];
  for (let at = 0; at < bytes.length; at += piece) {
    const isLast = at + piece >= bytes.length;
    frames.push(frame(type.data, isLast ? flags.endStream : 0, stream, bytes.subarray(at, at + piece)));
  }
  return Buffer.concat(frames);
}

export const compressionBombs: Attack = {
  name: 'compression-bombs',
  about: 'gzip bodies of 15 and 200 MiB',
  async run({ http, grpc }, signal) {
    const all = await Promise.all([
      ...requests.map((request) =>
        flood(
          2,
          signal,
          () => Peer.open(http),
          async (peer) => {
            const answered = new Promise((resolve) => {
              peer.socket.once('data', resolve);
              peer.socket.once('close', resolve);
              signal.addEventListener('abort', resolve, { once: true });
            });
            await peer.write(request);
            await answered;
            return 1;
          },
        ),
      ),
      // One window's worth of bytes at a time: this peer does not read what the server allows.
      flood(
        4,
        signal,
        () => Peer.openHttp2(grpc),
        async (peer) => {
          await peer.write(grpcCall(peer, allowed.length < 60_000 ? allowed : allowed.subarray(0, 60_000)));
          await new Promise((resolve) => setTimeout(resolve, 50));
          return 1;
        },
      ),
    ]);
    return {
      units: all.reduce((sum, { units }) => sum + units, 0),
      connections: all.reduce((sum, { connections }) => sum + connections, 0),
    };
  },
};
