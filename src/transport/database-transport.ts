import { enqueueIdOf } from '../domain/streams/stream-message.ts';
import type { Transport } from './transport.ts';

/** The database alone: a job's row is its own message, so there is nothing to carry. */
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
