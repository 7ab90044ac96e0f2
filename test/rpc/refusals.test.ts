/** Calls that the libraries refuse by themselves are counted like all others. */

import { type ClientHttp2Session, connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { expect } from 'chai';
import { LeasesService } from '../../gen/leasehold/v1/leases_pb.js';
import { limits } from '../../src/domain/limits.ts';
import { onEveryEngine } from '../support/engines.ts';
import { readMetrics } from '../support/metrics-text.ts';
import type { TestServer } from '../support/server.ts';
import { eventually } from '../support/server.ts';
import { type ServerShare, shareServer } from '../support/shared-server.ts';
import { pathOf } from '../support/wires.ts';

/** A message in an envelope; `flags` is 1 for a message declared as compressed. */
function envelope(message: Uint8Array, flags = 0, length = message.length): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

/** Sends an invalid request, and returns the status of the answer. */
function sendGrpc(
  session: ClientHttp2Session,
  path: string,
  body: Uint8Array,
  headers: Record<string, string> = {},
): Promise<number> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    });
    const tell = ({ 'grpc-status': status }: IncomingHttpHeaders) => {
      if (status !== undefined) resolve(Number(status));
    };
    stream.on('response', tell);
    stream.on('trailers', tell);
    stream.on('error', reject);
    stream.resume();
    stream.end(body);
  });
}

onEveryEngine((engine) => {
  describe('metrics of calls that a library refuses', () => {
    const share: ServerShare = shareServer(engine, {});
    let server: TestServer;
    let session: ClientHttp2Session;
    before(async () => {
      server = await share.start();
      session = connectHttp2(`http://${server.grpc}`);
    });
    after(async () => {
      session.close();
      await share.leave();
    });

    const streamPath = `/${LeasesService.typeName}/StreamHeartbeats`;
    const count = async (transport: string, path: string, code: string) =>
      (await readMetrics(server.http)).value('leasehold_rpc_requests_total', {
        transport,
        method: path.slice(1),
        code,
      }) ?? 0;

    /** Expects one more call in the counter after the call has ended, and no open call. */
    const counted = async (transport: string, path: string, code: string, send: () => Promise<unknown>) => {
      const before = await count(transport, path, code);
      await send();
      await eventually(`${path} is counted with ${code}`, async () =>
        (await count(transport, path, code)) > before ? true : undefined,
      );
      expect(await count(transport, path, code)).to.equal(before + 1);
      const open = (await readMetrics(server.http)).value('leasehold_rpc_open_requests', {
        transport,
        method: path.slice(1),
      });
      expect(open).to.equal(undefined);
    };

    const large = limits.frameBytes + 1;
    for (const [kind, path] of [
      ['a unary method', pathOf('GetJob')],
      ['a stream of answers', pathOf('WatchJob')],
      ['a stream in both directions', streamPath],
    ] as const) {
      it(`counts a refused call with its code over gRPC, of ${kind}`, async () => {
        const send = (body: Uint8Array, headers = {}) => sendGrpc(session, path, body, headers);
        await counted('grpc', path, 'RESOURCE_EXHAUSTED', async () =>
          expect(await send(envelope(Buffer.alloc(0), 0, large))).to.equal(8),
        );
        await counted('grpc', path, 'UNIMPLEMENTED', async () =>
          expect(await send(envelope(Buffer.from('x'), 1), { 'grpc-encoding': 'rot13' })).to.equal(12),
        );
        await counted('grpc', path, 'INVALID_ARGUMENT', async () =>
          expect(await send(envelope(Buffer.from('not gzip'), 1), { 'grpc-encoding': 'gzip' })).to.equal(3),
        );
      });
    }

    it('counts a call that the server itself refuses once over gRPC', async () => {
      const path = pathOf('GetJob');
      await counted('grpc', path, 'NOT_FOUND', async () =>
        expect(await sendGrpc(session, path, envelope(Buffer.alloc(0)))).to.equal(5),
      );
      await counted('grpc', path, 'INVALID_ARGUMENT', async () =>
        expect(await sendGrpc(session, path, envelope(Buffer.from('ffff', 'hex')))).to.equal(3),
      );
    });

    const post = (path: string, type: string, body: Uint8Array | string, headers = {}) =>
      fetch(`${server.http}${path}`, {
        method: 'POST',
        headers: { 'content-type': type, ...headers },
        body: typeof body === 'string' ? body : new Uint8Array(body),
      }).then((response) => response.arrayBuffer());

    it('counts a refused call with its code over Connect and gRPC-Web', async () => {
      const unary = pathOf('GetJob');
      const stream = pathOf('WatchJob');
      const rot13 = { 'content-encoding': 'rot13' };
      const refusals: [path: string, code: string, send: () => Promise<unknown>][] = [
        [unary, 'UNIMPLEMENTED', () => post(unary, 'application/json', '{}', rot13)],
        [
          unary,
          'UNIMPLEMENTED',
          () =>
            post(unary, 'application/grpc-web+json', envelope(Buffer.from('{}'), 1), {
              'grpc-encoding': 'rot13',
              'x-grpc-web': '1',
            }),
        ],
        [
          stream,
          'UNIMPLEMENTED',
          () =>
            post(stream, 'application/connect+json', envelope(Buffer.from('{}'), 1), {
              'connect-content-encoding': 'rot13',
            }),
        ],
        [
          unary,
          'INVALID_ARGUMENT',
          () => post(unary, 'application/json', '{}', { 'connect-timeout-ms': 'soon' }),
        ],
        [unary, 'UNKNOWN', () => post(unary, 'text/plain', '{}')],
      ];
      for (const [path, code, send] of refusals) await counted('http', path, code, send);
    });

    it('counts a call that the server itself refuses or serves once over Connect', async () => {
      const unary = pathOf('GetJob');
      const body = '{"jobId":"0190a000-0000-7000-8000-000000000000"}';
      await counted('http', unary, 'NOT_FOUND', () => post(unary, 'application/json', body));
      const stream = pathOf('WatchJob');
      await counted('http', stream, 'NOT_FOUND', () =>
        post(stream, 'application/connect+json', envelope(Buffer.from(body))),
      );
    });
  });
});
