/** Clients that begin a request and then send below the minimum rate, or at a steady sufficient rate. */
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import type { TestServer } from '../support/server.ts';

/** Larger than the pieces that a server refuses for their size. */
const pieceBytes = 256;
const pieceMs = 50;

/** A request in progress. `answer` is the server's answer with its status, once it has arrived. */
export interface SlowClient {
  answer: string;
  isOver: boolean;
  write(bytes: Buffer): void;
  /** Marks the request as complete. */
  end(): void;
  close(): void;
}

/** Begins a request over HTTP/1.1 whose body has not ended. */
export async function beginHttp(server: TestServer, path: string, type: string): Promise<SlowClient> {
  const { hostname, port } = new URL(server.http);
  const socket = connectTcp(Number(port), hostname);
  const client: SlowClient = {
    answer: '',
    isOver: false,
    write: (bytes) => {
      socket.write(`${bytes.length.toString(16)}\r\n`);
      socket.write(bytes);
      socket.write('\r\n');
    },
    end: () => void socket.write('0\r\n\r\n'),
    close: () => void socket.destroy(),
  };
  socket.on('data', (chunk) => {
    client.answer += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    client.isOver = true;
  });
  await once(socket, 'connect');
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`,
  );
  return client;
}

/** Begins a call over gRPC. */
export function beginGrpc(server: TestServer, path: string): SlowClient {
  const session = connectHttp2(`http://${server.grpc}`);
  session.on('error', () => {});
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  const client: SlowClient = {
    answer: '',
    isOver: false,
    write: (bytes) => void stream.write(bytes),
    end: () => void stream.end(),
    close: () => session.destroy(),
  };
  const take = (headers: Record<string, unknown>) => {
    const { 'grpc-status': status, 'grpc-message': message } = headers;
    if (status !== undefined) client.answer = `grpc-status: ${status} ${message ?? ''}`;
  };
  stream.on('response', take);
  stream.on('trailers', take);
  stream.on('error', () => {});
  stream.on('close', () => {
    client.isOver = true;
  });
  stream.resume();
  return client;
}

/** Sends the given bytes at once, and then pieces at long intervals, until the request has ended. */
export function drip(client: SlowClient, first: Buffer): SlowClient {
  client.write(first);
  const piece = Buffer.alloc(pieceBytes, ' ');
  const stop = () => clearInterval(timer);
  const timer = setInterval(() => (client.isOver ? stop() : client.write(piece)), pieceMs);
  const { close } = client;
  client.close = () => {
    stop();
    close();
  };
  return client;
}

/** Sends bytes at a steady rate, and then ends the request. */
export async function sendSteadily(client: SlowClient, bytes: Buffer, bytesPerS: number): Promise<void> {
  const stepMs = 20;
  const beganAt = performance.now();
  for (let sent = 0; sent < bytes.length; ) {
    await new Promise((resolve) => setTimeout(resolve, stepMs));
    const due = Math.min(bytes.length, Math.ceil(((performance.now() - beganAt) / 1_000) * bytesPerS));
    client.write(bytes.subarray(sent, due));
    sent = due;
  }
  client.end();
}
