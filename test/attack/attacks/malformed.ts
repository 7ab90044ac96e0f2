/**
 * Messages that cannot be read, a million and more in the long form: gRPC frames, Connect bodies, REST
 * bodies.
 */
import { randomBytes } from 'node:crypto';
import { type Attack, type Counts, enveloped, flags, flood, frame, grpcBlock, Peer, type } from '../wire.ts';

const ahead = 50;
const paths = [
  'JobsService/SubmitJob',
  'JobsService/ListJobs',
  'LeasesService/Heartbeat',
  'JobsService/GetJob',
];
const blocks = paths.map((path) => grpcBlock(`/leasehold.v1.${path}`));
const routes = ['/api/scheduler/jobs/submit', '/internal/worker/claim', '/api/files/acquire'];
const texts = [
  '{',
  '[]',
  '{"addon_id":1}',
  '\0',
  '{"a":"\\ud800"}',
  '1e999',
  '"',
  '{"payload":[[[[[[',
  'nul',
  '{}}',
];

const any = <Item>(items: readonly Item[]): Item => items[Math.floor(Math.random() * items.length)] as Item;
const randomMessage = () => randomBytes(Math.floor(Math.random() * 64));

function grpcCalls(peer: Peer): Buffer {
  const frames: Buffer[] = [];
  for (let i = 0; i < ahead; i++) {
    const stream = peer.nextStream();
    const message = enveloped(randomMessage());
    // Some say that they are longer, shorter or compressed, and are not.
    if (i % 5 === 1) message.writeUInt32BE(Math.floor(Math.random() * 2 ** 32), 1);
    if (i % 5 === 2) message[0] = 1 + Math.floor(Math.random() * 255);
    frames.push(
      frame(type.headers, flags.endHeaders, stream, any(blocks)),
      frame(type.data, flags.endStream, stream, message),
    );
  }
  return Buffer.concat(frames);
}

function post(path: string, contentType: string, body: Buffer): Buffer {
  const head =
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: ${contentType}\r\n` +
    `content-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

const restCalls = () =>
  Buffer.concat(
    Array.from({ length: ahead }, () => post(any(routes), 'application/json', Buffer.from(any(texts)))),
  );
const connectCalls = () =>
  Buffer.concat(
    Array.from({ length: ahead }, (_, i) =>
      post(`/leasehold.v1.${any(paths)}`, i % 2 ? 'application/proto' : 'application/json', randomMessage()),
    ),
  );

/** Sends `ahead` requests and reads their answers, which a client must do to be served. */
async function pipelined(peer: Peer, bytes: Buffer, signal: AbortSignal): Promise<number> {
  let answers = 0;
  const answered = new Promise<void>((resolve) => {
    const read = (chunk: Buffer) => {
      answers += chunk.toString('latin1').split('HTTP/1.1 ').length - 1;
      if (answers >= ahead) done();
    };
    const done = () => {
      peer.socket.off('data', read);
      peer.socket.off('close', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    peer.socket.on('data', read);
    peer.socket.on('close', done);
    signal.addEventListener('abort', done);
  });
  await peer.write(bytes);
  await answered;
  return answers;
}

export const malformed: Attack = {
  name: 'malformed',
  about: 'messages and bodies that cannot be read',
  async run({ http, grpc }, signal) {
    const all: Counts[] = await Promise.all([
      flood(
        2,
        signal,
        () => Peer.openHttp2(grpc),
        async (peer) => {
          await peer.write(grpcCalls(peer));
          return ahead;
        },
      ),
      flood(
        4,
        signal,
        () => Peer.open(http),
        (peer) => pipelined(peer, restCalls(), signal),
      ),
      flood(
        4,
        signal,
        () => Peer.open(http),
        (peer) => pipelined(peer, connectCalls(), signal),
      ),
    ]);
    return {
      units: all.reduce((sum, { units }) => sum + units, 0),
      connections: all.reduce((sum, { connections }) => sum + connections, 0),
    };
  },
};
