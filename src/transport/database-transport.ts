import { enqueueIdOf } from '../domain/streams/stream-message.ts';
import type { Transport } from './transport.ts';

/** The transport without Redis: a job's row is its own message, so nothing has to be sent. */
export const databaseTransport: Transport = {
  keepsMessages: false,
  state: 'none',
  send: () => {},
  namesOf: async (messages) => messages.map(enqueueIdOf),
  inspect: async () => null,
  ack: () => {},
  start: () => {},
  runOnce: async () => {},
  stop: async () => {},
};
