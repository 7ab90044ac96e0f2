/** The server never reports a client's mistake below the messages as its own. */
import { connect as connectHttp2, constants } from 'node:http2';
import { gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { codeFromString } from '@connectrpc/connect/protocol-connect';
import { expect } from 'chai';
import { SubmitJobRequestSchema } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { submit } from '../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const service = '/leasehold.v1.JobsService';
const least = { addonId: 'a', jobType: 't', costUnits: 1 };
const message = Buffer.from(toBinary(SubmitJobRequestSchema, create(SubmitJobRequestSchema, least)));
const serverFaults = [Code.Internal, Code.Unknown, Code.DataLoss, Code.Unavailable];

function envelope(flags: number, bytes: Buffer, length = bytes.length): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, bytes]);
}

const fine = envelope(0, message);
const empty = Buffer.alloc(0);

/** Bodies of streams and of gRPC that no client should send. */
const bodies: Record<string, Buffer> = {
  'no message': empty,
  'half of a head': fine.subarray(0, 3),
  'half of a message': fine.subarray(0, fine.length - 3),
  'more than it says': Buffer.concat([fine, Buffer.from('rest')]),
  'two messages': Buffer.concat([fine, fine]),
  'a message that is said to be compressed': envelope(1, message),
  'a message in gzip': envelope(1, gzipSync(message)),
  'an end of the stream': envelope(2, Buffer.from('{}')),
  'a message and an end of the stream': Buffer.concat([fine, envelope(2, Buffer.from('{}'))]),
  'a trailer': envelope(0x80, Buffer.from('grpc-status: 0\r\n')),
  'a trailer in gzip': envelope(0x81, gzipSync('grpc-status: 0\r\n')),
  'unknown flags': envelope(0x7c, message),
  'a length beyond all bounds': envelope(0, message, 0xffff_ffff),
  'a message of nothing': envelope(0, empty),
  'a compressed message of nothing': envelope(1, empty),
  text: Buffer.from('hello, this is no message at all'),
  'only zeros': Buffer.alloc(1_000),
};

/** Invalid header values, for each protocol that reads them. */
const headers: Record<string, Record<string, string>> = {
  'nothing else': {},
  'gzip as encoding': {
    'grpc-encoding': 'gzip',
    'connect-content-encoding': 'gzip',
    'content-encoding': 'gzip',
  },
  'an unknown encoding': {
    'grpc-encoding': 'rot13',
    'connect-content-encoding': 'rot13',
    'content-encoding': 'rot13',
  },
  'a timeout that is none': { 'grpc-timeout': 'soon', 'connect-timeout-ms': 'soon' },
  'a timeout below zero': { 'grpc-timeout': '-5S', 'connect-timeout-ms': '-5' },
  'a timeout beyond all bounds': { 'grpc-timeout': '999999999999S', 'connect-timeout-ms': '99999999999999' },
  'a protocol version that is none': { 'connect-protocol-version': '9' },
  'an accepted encoding that is none': {
    'grpc-accept-encoding': ',;q=x',
    'connect-accept-encoding': ',;q=x',
    'accept-encoding': ',;q=x',
  },
};

onEveryEngine((engine) => {
  describe('mistakes of RPC clients', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(async () => {
      await submit(server, {});
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    const post = async (method: string, type: string, body: Buffer, more: Record<string, string>) => {
      const response = await fetch(`${server.http}${service}/${method}`, {
        method: 'POST',
        headers: { 'content-type': type, ...more },
        body: new Uint8Array(body),
        signal: AbortSignal.timeout(5_000),
      });
      const text = Buffer.from(await response.arrayBuffer()).toString('latin1');
      return { response, text };
    };

    /** The code of a Connect answer, in its body or in its last message. */
    async function connectCode(method: string, type: string, body: Buffer, more: Record<string, string>) {
      const { response, text } = await post(method, type, body, more);
      expect(response.status === 501 ? 499 : response.status, text).to.be.below(500);
      const [, word] = /"code":"(\w+)"/.exec(text) ?? [];
      return word === undefined ? undefined : codeFromString(word);
    }

    async function webCode(method: string, type: string, body: Buffer, more: Record<string, string>) {
      const { response, text } = await post(method, type, body, { 'x-grpc-web': '1', ...more });
      expect(response.status, text).to.equal(200);
      return Number(response.headers.get('grpc-status') ?? /grpc-status: ?(\d+)/.exec(text)?.[1] ?? 0);
    }

    function grpcCode(path: string, body: Buffer, more: Record<string, string>): Promise<number> {
      return new Promise((resolve, reject) => {
        const session = connectHttp2(`http://${server.grpc}`);
        const stream = session.request({
          ':method': 'POST',
          ':path': path,
          'content-type': 'application/grpc+proto',
          te: 'trailers',
          ...more,
        });
        let status: number | undefined;
        const look = (found: Record<string, unknown>) => {
          if (found['grpc-status'] !== undefined) status = Number(found['grpc-status']);
        };
        const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), 5_000);
        stream.on('response', look);
        stream.on('trailers', look);
        stream.on('data', () => {});
        stream.on('error', reject);
        session.on('error', reject);
        stream.on('close', () => {
          clearTimeout(timer);
          session.close();
          if (status === undefined) reject(new Error('no status came'));
          else resolve(status);
        });
        stream.end(body);
      });
    }

    it('answers 415 to gRPC over HTTP/1.1, and reads no body (A4)', async () => {
      for (const type of ['application/grpc', 'application/grpc+proto', 'application/grpc+json']) {
        for (const body of [fine, envelope(1, gzipSync(message))]) {
          const { response } = await post('SubmitJob', type, body, { 'grpc-encoding': 'gzip' });
          expect(response.status, type).to.equal(415);
        }
      }
    });

    const check = (code: number | undefined, what: string) => {
      if (code !== undefined) expect(serverFaults, `${what}: ${Code[code]}`).not.to.include(code);
    };

    for (const [said, more] of Object.entries(headers)) {
      it(`blames the client for a bad request over Connect, with ${said}`, async () => {
        for (const [what, body] of Object.entries(bodies)) {
          for (const type of ['application/json', 'application/proto'])
            check(await connectCode('SubmitJob', type, body, more), `${what} as ${type}`);
          for (const type of ['application/connect+json', 'application/connect+proto'])
            check(await connectCode('WatchJob', type, body, more), `${what} as ${type}`);
        }
      });

      it(`blames the client for a bad request over gRPC-Web, with ${said}`, async () => {
        for (const [what, body] of Object.entries(bodies))
          for (const type of ['application/grpc-web+json', 'application/grpc-web+proto'])
            for (const method of ['SubmitJob', 'WatchJob'])
              check(await webCode(method, type, body, more), `${what} to ${method} as ${type}`);
      });

      it(`blames the client for a bad request over gRPC, with ${said}`, async () => {
        const paths = [`${service}/SubmitJob`, `${service}/WatchJob`, '/grpc.health.v1.Health/Check'];
        for (const path of [...paths, '/leasehold.v1.LeasesService/StreamHeartbeats'])
          for (const [what, body] of Object.entries(bodies))
            check(await grpcCode(path, body, more), `${what} to ${path}`);
      });
    }
  });
});
