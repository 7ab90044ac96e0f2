import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { LeanConnection } from './lean-grpc.ts';
import { type ClientKind, headroomBytes, type Link, partsOf } from './link.ts';

export function connect(kind: ClientKind, address: string): Link {
  return kind === 'lean' ? new LeanConnection(address) : grpcJs(address);
}

const asIs = (bytes: Buffer): Buffer => bytes;

function grpcJs(address: string): Link {
  const { authority, key } = partsOf(address);
  const metadata = new Metadata();
  if (key !== undefined) metadata.set('authorization', `Bearer ${key}`);
  const client = new Client(authority, credentials.createInsecure(), {
    // Without a pool of its own every client of this process would share one connection.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.max_receive_message_length': -1,
  });
  const open = new Set<{ cancel(): void }>();
  return {
    call: (path, message) =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(path, asIs, asIs, message, metadata, (error, answer) =>
          error ? reject(error) : resolve(answer as Buffer),
        );
      }),
    open: (path, listener) => {
      const stream = client.makeBidiStreamRequest(path, asIs, asIs, metadata);
      open.add(stream);
      let over = false;
      const end = (error: Error) => {
        open.delete(stream);
        if (!over) listener.ended(error);
        over = true;
      };
      stream.on('data', (bytes: Buffer) => listener.message(bytes));
      stream.on('error', end);
      stream.on('end', () => end(new Error('the server ended a stream')));
      return { send: (message) => void stream.write(message.subarray(headroomBytes)) };
    },
    close: () => {
      // A channel that is closed would let its streams go on.
      for (const stream of open) stream.cancel();
      client.close();
    },
  };
}
