import type { ServiceDefinition } from '@grpc/grpc-js';

const asIs = (bytes: Buffer): Buffer => bytes;

/** A service that returns its input. */
export const echo = {
  echo: {
    path: '/test.Echo/Echo',
    requestStream: false,
    responseStream: false,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  },
} satisfies ServiceDefinition;
