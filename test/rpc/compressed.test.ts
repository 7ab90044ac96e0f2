/**
 * Compression with gzip changes how a message is transferred, and nothing else. Over HTTP the server refuses
 * other encodings, and names the supported one.
 */
import { brotliCompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { compressionGzip, createConnectTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { expect } from 'chai';
import { JobsService } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { jobsPath, newAddon, submit } from '../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { expectRpcError, failure, grpcJsTransport, pathOf } from '../support/wires.ts';

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
  describe('compressed messages', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(async () => {
      await submit(server, {});
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    const largest = 16 * mebibyte;
    const whole = (bytes: number) => {
      const text = json({ payload: { text: '' } });
      return gzipSync(json({ payload: { text: 'x'.repeat(bytes - text.length) } }));
    };
    const refusals: Record<string, [make: () => Buffer, code: Code]> = {
      'has a word that no enum has': [() => gzipSync(json({ priority: 'SUPER' })), Code.InvalidArgument],
      'has a number for text': [() => gzipSync('{"addonId":5}'), Code.InvalidArgument],
      'is cut off': [() => gzipSync('{"addonId":5'), Code.InvalidArgument],
      'is something else': [() => Buffer.from(json({})), Code.InvalidArgument],
      'is cut off on its way': [() => gzipSync(json({})).subarray(0, 20), Code.InvalidArgument],
      'is small, and too large once it is decompressed': [() => whole(largest + 1), Code.ResourceExhausted],
      'is small, and a hundred times too large once it is decompressed': [
        () => gzipSync(Buffer.alloc(100 * largest)),
        Code.ResourceExhausted,
      ],
    };
    for (const [how, [make, code]] of Object.entries(refusals)) {
      it(`refuses a gzip message as the client's mistake if it ${how} (A7)`, async () => {
        const body = make();
        const response = await post(server, 'application/json', body, { 'content-encoding': 'gzip' });
        const bytes = new Uint8Array(await response.arrayBuffer());
        const unreadable = new ConnectError('not an error in JSON', Code.Unknown);
        const error = errorFromJsonBytes(bytes, undefined, unreadable);
        expect(Code[error.code], error.rawMessage).to.equal(Code[code]);
        const headers = { 'grpc-encoding': 'gzip', 'x-grpc-web': '1' };
        const web = await postGrpcWeb(server, 'application/grpc-web+json', body, headers);
        expect(Code[web.code], web.message).to.equal(Code[code]);
      });
    }

    it('accepts a decompressed message as large as any other (A7)', async () => {
      // The text is larger than a job may be, and the message is within the size limit.
      const answer = await post(server, 'application/json', whole(largest), { 'content-encoding': 'gzip' });
      expect(await answer.text()).to.include('payload_too_large: payload');
    });

    const transports = {
      Connect: createConnectTransport,
      'Connect in JSON': createConnectTransport,
      'gRPC-Web': createGrpcWebTransport,
    };
    for (const [wire, create] of Object.entries(transports)) {
      it(`serves gzip over ${wire}, with the client of Connect (A7)`, async () => {
        const transport = create({
          baseUrl: server.http,
          httpVersion: '1.1',
          useBinaryFormat: wire !== 'Connect in JSON',
          sendCompression: compressionGzip,
          acceptCompression: [compressionGzip],
          compressMinBytes: 0,
        });
        const jobs = createClient(JobsService, transport);
        const payload = { text: 'x'.repeat(100_000) };
        const addonId = newAddon();
        const { job } = await jobs.submitJob({ ...least, addonId, payload });
        expect(job?.payload).to.deep.equal(payload);
        const heard: string[] = [];
        const abort = new AbortController();
        for await (const event of jobs.watchJob({ jobId: job?.jobId ?? '' }, { signal: abort.signal })) {
          heard.push(event.job?.jobId ?? '');
          break;
        }
        abort.abort();
        expect(heard).to.deep.equal([job?.jobId]);
        const nameless = await failure(jobs.submitJob({ ...least, addonId: '' }));
        expect(expectRpcError(nameless, Code.InvalidArgument, 'invalid_request').field).to.equal('addon_id');
      });
    }

    it('compresses a large answer if the client accepts gzip (A7)', async () => {
      const text = 'x'.repeat(100_000);
      const body = Buffer.from(json({ addonId: newAddon(), payload: { text } }));
      const large = await post(server, 'application/json', body, { 'accept-encoding': 'gzip' });
      expect(large.headers.get('content-encoding')).to.equal('gzip');
      expect(Number(large.headers.get('content-length'))).to.be.below(10_000);
      expect(await large.text()).to.include(text);
      const plain = await post(server, 'application/json', body, { 'accept-encoding': 'identity' });
      expect(plain.headers.get('content-encoding')).to.equal(null);
      const small = await post(server, 'application/json', Buffer.from(json({})), {
        'accept-encoding': 'gzip',
      });
      expect(small.headers.get('content-encoding')).to.equal(null);
    });

    it('refuses an encoding other than gzip on every interface, and names gzip', async () => {
      const body = brotliCompressSync(json({}));
      for (const type of ['application/json', 'application/proto']) {
        const error = await refused(post(server, type, body, { 'content-encoding': 'br' }));
        expect(Code[error.code], error.rawMessage).to.equal(Code[Code.Unimplemented]);
        expect(error.rawMessage).to.include('br').and.to.include('gzip');
      }
      const headers = { 'grpc-encoding': 'br', 'x-grpc-web': '1' };
      const { code, message } = await postGrpcWeb(server, 'application/grpc-web+json', body, headers);
      expect(Code[code], message).to.equal(Code[Code.Unimplemented]);
      expect(message).to.include('br').and.to.include('gzip');
    });

    describe('over REST', () => {
      const rest = (body: Buffer, headers: Record<string, string> = { 'content-encoding': 'gzip' }) =>
        fetch(`${server.http}${jobsPath}/submit`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: new Uint8Array(body),
        });
      const job = (text: string) =>
        JSON.stringify({ addon_id: newAddon(), job_type: 't', cost_units: 1, payload: { text } });

      it('serves a gzip body (A7)', async () => {
        const answer = await rest(gzipSync(job('x'.repeat(500_000))));
        expect(answer.status, await answer.text()).to.equal(201);
      });

      it('decompresses up to the size limit of any body, and not a byte more (A7)', async () => {
        const spare = mebibyte - job('').length;
        expect((await rest(gzipSync(job('x'.repeat(spare - 10))))).status).to.equal(201);
        const over = await rest(gzipSync(job('x'.repeat(spare + 10))));
        expect(over.status).to.equal(413);
        expect(await over.json()).to.deep.include({ code: 'payload_too_large', field: 'body' });
      });

      for (const [how, make] of Object.entries({
        'is not gzip': () => Buffer.from(job('x')),
        'is cut off': () => gzipSync(job('x')).subarray(0, 30),
        'has a wrong checksum': () => {
          const bytes = gzipSync(job('x'));
          bytes[bytes.length - 5] = (bytes.at(-5) ?? 0) ^ 0xff;
          return bytes;
        },
      })) {
        it(`refuses a gzip body with 400 if it ${how}`, async () => {
          const answer = await rest(make());
          expect(answer.status).to.equal(400);
          expect(await answer.json()).to.deep.include({ code: 'invalid_request', field: 'body' });
        });
      }

      it('refuses another encoding than gzip with 415, and names gzip', async () => {
        const answer = await rest(brotliCompressSync(job('x')), { 'content-encoding': 'br' });
        expect(answer.status).to.equal(415);
        expect(answer.headers.get('accept-encoding')).to.equal('gzip');
        expect(await answer.json()).to.deep.include({ code: 'unsupported_media_type' });
      });

      for (const path of ['/openapi.json', '/metrics', jobsPath]) {
        it(`compresses the answer of ${path} only if the client accepts gzip (A7)`, async () => {
          await rest(Buffer.from(job('x'.repeat(50_000))), {});
          const { request } = await import('node:http');
          const ask = (encoding: string) =>
            new Promise<{ headers: Record<string, unknown>; bytes: Buffer }>((resolve, reject) => {
              const headers = { 'accept-encoding': encoding };
              const asked = request(`${server.http}${path}`, { headers }, (response) => {
                const chunks: Buffer[] = [];
                response.on('data', (chunk: Buffer) => chunks.push(chunk));
                response.on('end', () =>
                  resolve({ headers: response.headers, bytes: Buffer.concat(chunks) }),
                );
              });
              asked.on('error', reject);
              asked.end();
            });
          for (const encoding of ['gzip', 'br, GZIP;q=0.5', '*', 'deflate, gzip, br']) {
            const { headers, bytes } = await ask(encoding);
            expect(headers['content-encoding'], encoding).to.equal('gzip');
            expect(headers.vary).to.equal('accept-encoding');
            expect(headers['content-length']).to.equal(String(bytes.length));
            expect(gunzipSync(bytes).length).to.be.above(2 * bytes.length);
          }
          for (const encoding of ['', 'identity', 'br', 'gzip;q=0', '*;q=0', 'gzip;q=0.0, *']) {
            const { headers } = await ask(encoding);
            expect(headers['content-encoding'], encoding).to.equal(undefined);
            expect(headers.vary).to.equal('accept-encoding');
          }
        });
      }
    });

    it('answers unimplemented for a unary call in an unknown encoding', async () => {
      const headers = { 'content-encoding': 'rot13' };
      const error = await refused(post(server, 'application/json', Buffer.from('{}'), headers));
      expect(Code[error.code], error.rawMessage).to.equal(Code[Code.Unimplemented]);
    });

    it('accepts the encoding identity', async () => {
      const headers = { 'content-encoding': 'identity' };
      const response = await post(server, 'application/json', Buffer.from(json({})), headers);
      expect(response.status, await response.text()).to.equal(200);
    });

    it('answers invalid_argument for a compressed message without an encoding', async () => {
      for (const type of ['application/grpc-web+json', 'application/grpc-web+proto']) {
        const { code, message } = await postGrpcWeb(server, type, gzipSync(json({})), { 'x-grpc-web': '1' });
        expect(Code[code], message).to.equal(Code[Code.InvalidArgument]);
        expect(message).to.match(/^invalid_request: /);
      }
    });

    it('serves and refuses compressed messages over gRPC like any other', async () => {
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
