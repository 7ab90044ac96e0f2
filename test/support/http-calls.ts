/** Single HTTP calls with exactly the given headers, and pages for browsers to open. */
import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type Server,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Body } from './jobs-api.ts';

export interface HttpCall {
  method?: string;
  headers?: Record<string, string>;
  /** Sent as JSON unless the headers name another type. */
  body?: string | Buffer;
}

export interface HttpAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  bytes: Buffer;
  /** The body, if it is JSON. */
  body: Body;
}

/** `fetch` sends headers of its own, and hides some of the answer's. */
export async function httpCall(
  url: string,
  { method = 'GET', headers = {}, body }: HttpCall = {},
): Promise<HttpAnswer> {
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const sent = request(url, { method, headers: { ...type, ...length, ...headers } });
  sent.end(body);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  const bytes = Buffer.concat(chunks);
  const { 'content-type': kind = '', 'content-encoding': encoding } = answer.headers;
  const isJson = encoding === undefined && /^application\/json/.test(kind);
  return {
    status: answer.statusCode ?? 0,
    headers: answer.headers,
    bytes,
    body: isJson ? (JSON.parse(bytes.toString()) as Body) : undefined,
  };
}

export interface PageHost {
  port: number;
  close(): Promise<void>;
}

/** Serves an empty page at every path of 127.0.0.1, for a browser that needs an origin. */
export async function startPages(): Promise<PageHost> {
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>page</title>');
  });
  return listening(server);
}

export interface Recorder extends PageHost {
  /** All requests that were answered, in the order of their answers. */
  seen: { method: string; path: string; headers: IncomingHttpHeaders; status: number }[];
}

/** A port in front of a server that notes what a browser sends, which the browser does not tell in full. */
export async function startRecorder(target: string): Promise<Recorder> {
  const seen: Recorder['seen'] = [];
  const server = createServer((incoming, response) => {
    const { method = '', url: path = '', headers } = incoming;
    const onward = request(`${target}${path}`, { method, headers }, (answer) => {
      const status = answer.statusCode ?? 0;
      seen.push({ method, path, headers, status });
      response.writeHead(status, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    incoming.pipe(onward);
  });
  return { ...(await listening(server)), seen };
}

async function listening(server: Server): Promise<PageHost> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
