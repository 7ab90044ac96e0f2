/** Requests of which half arrives: REST bodies, Connect requests and gRPC messages. */
import {
  type Attack,
  attackerAddress,
  enveloped,
  flags,
  frame,
  grpcBlock,
  hold,
  Peer,
  setting,
  type,
} from '../wire.ts';

const connections = 1_000;
const bytes = 1_500_000;
const piece = Buffer.alloc(16_384, 0x20);

const head = (path: string) =>
  Buffer.from(
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n` +
      `content-length: ${bytes}\r\n\r\n`,
  );
const rest = head('/api/scheduler/jobs/submit');
const connect = head('/leasehold.v1.JobsService/SubmitJobs');
const block = grpcBlock('/leasehold.v1.JobsService/SubmitJobs');
const announced = enveloped(Buffer.alloc(bytes)).subarray(0, 5);

export const halfMessages: Attack = {
  name: 'half-messages',
  about: '1,000 requests of which half arrives',
  run: ({ http, grpc }, signal) =>
    hold(
      connections,
      signal,
      async (n) => {
        const from = attackerAddress(n % 2);
        if (n % 3 === 0) {
          const peer = await Peer.openHttp2(grpc, setting(4, 65_535), from);
          if (!peer) return undefined;
          const stream = peer.nextStream();
          const data = [announced, piece, piece, piece].map((part) =>
            frame(type.data, flags.none, stream, part),
          );
          void peer.write(Buffer.concat([frame(type.headers, flags.endHeaders, stream, block), ...data]));
          return peer;
        }
        const peer = await Peer.open(http, from);
        void peer?.write(Buffer.concat([n % 3 === 1 ? rest : connect, ...Array<Buffer>(45).fill(piece)]));
        return peer;
      },
      async () => {},
    ),
};
