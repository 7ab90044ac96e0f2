/** Connections that are opened and say nothing, as many as the server takes, from several addresses. */
import { type Attack, attackerAddress, hold, Peer } from '../wire.ts';

const connections = 10_000;
const addresses = 8;

export const idleConnections: Attack = {
  name: 'idle-connections',
  about: '10,000 connections that say nothing',
  run: ({ http, grpc }, signal) =>
    hold(
      connections,
      signal,
      (n) => Peer.open(n % 2 === 0 ? http : grpc, attackerAddress(n % addresses)),
      async () => {},
    ),
};
