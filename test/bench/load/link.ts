import { Client, credentials } from '@grpc/grpc-js';
import { LeanConnection } from './lean-grpc.ts';

/** One gRPC connection: bytes in, bytes out. */
export interface Link {
  call(path: string, message: Buffer): Promise<Buffer>;
  close(): void;
}

/** `lean` costs the machine next to nothing; `grpc-js` is what programs in JavaScript really use. */
export const clients = ['lean', 'grpc-js'] as const;
export type ClientKind = (typeof clients)[number];

export function connect(kind: ClientKind, address: string): Link {
  return kind === 'lean' ? new LeanConnection(address) : grpcJs(address);
}

const asIs = (bytes: Buffer): Buffer => bytes;

function grpcJs(address: string): Link {
  const client = new Client(address, credentials.createInsecure(), {
    // Without a pool of its own every client of this process would share one connection.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.max_receive_message_length': -1,
  });
  return {
    call: (path, message) =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(path, asIs, asIs, message, (error, answer) =>
          error ? reject(error) : resolve(answer as Buffer),
        );
      }),
    close: () => client.close(),
  };
}
