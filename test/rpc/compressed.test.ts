/**
 * Over HTTP a compressed message is refused as such: it could not be looked at before it is read. Over gRPC compression
 * changes how a message travels, and nothing else.
 */
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { expect } from 'chai';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { newAddon, submit } from '../contracts/queue.ts';
import { onEveryEngine } from '../support/engines.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { expectRpcError, failure, grpcJsTransport, pathOf } from './wires.ts';

type Compress = (bytes: Uint8Array | string) => Buffer;
const compressions: Record<string, Compress> = {
  gzip: (bytes) => gzipSync(bytes),
  br: (bytes) => brotliCompressSync(bytes),
};
const least = { addonId: 'a', jobType: 't', costUnits: 1 };
const json = (fields: object) => JSON.stringify({ ...least, ...fields });
const mebibyte = 1024 * 1024;

function post(
  server: TestServer,
  type: string,
  body: Buffer,
  headers: Record<string, string>,
): Promise<Response> {
  return fetch(`${server.http}${pathOf('SubmitJob')}`, {
    method: 'POST',
    headers: { 'content-type': type, ...headers },
    body: new Uint8Array(body),
  });
}

async function refused(answer: Promise<Response>): Promise<ConnectError> {
  const response = await answer;
  const bytes = new Uint8Array(await response.arrayBuffer());
  expect(response.status, new TextDecoder().decode(bytes)).to.equal(501);
  return errorFromJsonBytes(bytes, undefined, new ConnectError('not an error in JSON', Code.Unknown));
}

async function postGrpcWeb(
  server: TestServer,
  type: string,
  message: Buffer,
  headers: Record<string, string>,
): Promise<{ code: Code; message: string }> {
  const head = Buffer.alloc(5);
  head[0] = 1;
  head.writeUInt32BE(message.length, 1);
  const response = await post(server, type, Buffer.concat([head, message]), headers);
  const trailer = Buffer.from(await response.arrayBuffer()).toString('latin1');
  const told = (name: string) =>
    response.headers.get(name) ?? new RegExp(`${name}: ?(.*)\\r\\n`).exec(trailer)?.[1] ?? '';
  return { code: Number(told('grpc-status')), message: decodeURIComponent(told('grpc-message')) };
}

onEveryEngine((engine) => {
  describe('a compressed message', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(async () => {
      await submit(server, {});
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    for (const [encoding, compress] of Object.entries(compressions)) {
      const connect = (type: string, body: Buffer) =>
        post(server, type, body, { 'content-encoding': encoding });
      const web = (type: string, body: Buffer) =>
        postGrpcWeb(server, type, body, { 'grpc-encoding': encoding, 'x-grpc-web': '1' });

      const bodies: Record<string, () => Buffer> = {
        'is fine': () => compress(json({})),
        'has a word that no enum has': () => compress(json({ priority: 'SUPER' })),
        'has a number for text': () => compress('{"addonId":5}'),
        'is cut off': () => compress('{"addonId":5'),
        'is empty': () => compress(''),
        'is no protobuf': () => compress(Buffer.from('ffffff', 'hex')),
        'is something else': () => Buffer.from(json({})),
        'is cut off on its way': () => compress(json({})).subarray(0, 20),
        'is small, and large once it is unpacked': () =>
          compress(json({ payload: { text: 'x'.repeat(17 * mebibyte) } })),
      };
      for (const [how, make] of Object.entries(bodies)) {
        it(`is refused as such with ${encoding} where it ${how}`, async () => {
          const body = make();
          for (const type of ['application/json', 'application/proto']) {
            const error = await refused(connect(type, body));
            expect(Code[error.code], error.rawMessage).to.equal(Code[Code.Unimplemented]);
            expect(error.rawMessage).to.include(encoding);
          }
          for (const type of ['application/grpc-web+json', 'application/grpc-web+proto']) {
            const { code, message } = await web(type, body);
            expect(Code[code], message).to.equal(Code[Code.Unimplemented]);
            expect(message).to.include(encoding);
          }
        });
      }

      it(`is never the answer to those who could read ${encoding}`, async () => {
        const body = Buffer.from(json({ addonId: newAddon(), payload: { text: 'x'.repeat(100_000) } }));
        const answer = await post(server, 'application/json', body, { 'accept-encoding': encoding });
        expect(answer.status, await answer.text()).to.equal(200);
        expect(answer.headers.get('content-encoding')).to.equal(null);
      });
    }

    it('is refused as such where nobody knows how it was compressed', async () => {
      const headers = { 'content-encoding': 'rot13' };
      const error = await refused(post(server, 'application/json', Buffer.from('{}'), headers));
      expect(Code[error.code], error.rawMessage).to.equal(Code[Code.Unimplemented]);
    });

    it('is none where it says that it is as it was', async () => {
      const headers = { 'content-encoding': 'identity' };
      const response = await post(server, 'application/json', Buffer.from(json({})), headers);
      expect(response.status, await response.text()).to.equal(200);
    });

    it('is refused where it does not say how it was compressed', async () => {
      const { code, message } = await postGrpcWeb(server, 'application/grpc-web+json', gzipSync(json({})), {
        'x-grpc-web': '1',
      });
      expect(Code[code], message).to.be.oneOf(['InvalidArgument', 'Internal', 'Unimplemented']);
    });

    it('is served and refused over gRPC as any other', async () => {
      const gzip = 2;
      const client = new GrpcClient(server.grpc, credentials.createInsecure(), {
        'grpc.default_compression_algorithm': gzip,
      });
      try {
        const jobs = createClient(JobsService, grpcJsTransport(client));
        const payload = { text: 'x'.repeat(100_000) };
        const { job } = await jobs.submitJob({ ...least, addonId: newAddon(), payload });
        expect(job?.payload).to.deep.equal(payload);
        const nameless = await failure(jobs.submitJob({ ...least, addonId: '' }));
        expect(expectRpcError(nameless, Code.InvalidArgument, 'invalid_request').field).to.equal('addon_id');
        const large = Array.from({ length: 18 }, () => ({
          ...least,
          payload: { text: 'x'.repeat(mebibyte - 99) },
        }));
        const error = await failure(jobs.submitJobs({ jobs: large }));
        expect(Code[error.code], error.rawMessage).to.equal(Code[Code.ResourceExhausted]);
      } finally {
        client.close();
      }
    });
  });
});
