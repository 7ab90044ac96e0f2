import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { constants } from 'node:os';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { localPrincipal } from '../../../src/domain/access/principal.ts';
import { limits } from '../../../src/domain/limits.ts';
import type { HealthMonitor } from '../../../src/engine/maintenance/health-monitor.ts';
import { receiveBudget } from '../../../src/lib/http/receive-budget.ts';
import { createLog } from '../../../src/lib/log.ts';
import { newId } from '../../../src/lib/uuid.ts';
import { createConnectHandler } from '../../../src/rpc/connect/handler.ts';
import { createGrpcServer, type GrpcServer } from '../../../src/rpc/grpc/server.ts';
import { Metrics } from '../../../src/telemetry/metrics.ts';
import {
  bindingOf,
  frame,
  frameFor,
  HeartbeatClient,
  heartbeatsPath,
  ScriptedEngine,
} from '../../support/heartbeat-streams.ts';
import { eventually } from '../../support/server.ts';
import { expectRpcError, failure, fromGrpc } from '../../support/wires.ts';

/** Any lease serves where only the number of leases matters. */
const many = (count: number): Buffer => Buffer.concat(Array<Buffer>(count).fill(frameFor([newId()])));

/** A message in the length-prefixed form of gRPC. */
function enveloped(message: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

const ids = (count: number): string[] => Array.from({ length: count }, () => newId());

/**
 * Makes the listener of a port fail to accept a connection, as in a process without free file descriptors.
 */
function failToAccept(port: number): void {
  type Listener = { address?(): { port?: number } | null; _handle?: { onconnection(error: number): void } };
  const { _getActiveHandles: activeHandles } = process as unknown as { _getActiveHandles(): Listener[] };
  const listener = activeHandles.call(process).find((each) => each.address?.()?.port === port);
  if (!listener?._handle) throw new Error(`nothing listens on port ${port}`);
  listener._handle.onconnection(-constants.errno.EMFILE);
}

const complaints: string[] = [];
const log = createLog({ level: 'warn', human: false, write: (line) => void complaints.push(line) });

describe('bidirectional streams over gRPC', () => {
  let engine: ScriptedEngine;
  let server: GrpcServer;
  let address: string;
  const open: HeartbeatClient[] = [];
  const connect = (options: ConstructorParameters<typeof HeartbeatClient>[1] = {}) => {
    const client = new HeartbeatClient(address, options);
    open.push(client);
    return client;
  };

  beforeEach(async () => {
    engine = new ScriptedEngine();
    const health = { onReady: () => {} } as unknown as HealthMonitor;
    server = createGrpcServer({
      bindings: [bindingOf(engine)],
      health,
      metrics: new Metrics(),
      log,
      receiving: receiveBudget,
    });
    const { host, port } = await server.listen({ host: '127.0.0.1', port: 0 });
    address = `${host}:${port}`;
  });
  afterEach(async () => {
    for (const client of open.splice(0)) client.close();
    await server.stop(1_000);
    expect(complaints.splice(0)).to.deep.equal([]);
  });

  it('carries frames up and verdicts down until the client ends its side', async () => {
    engine.eager = true;
    const client = connect();
    const leaseIds = ids(100);
    for (let i = 0; i < 100; i += 10) client.send(frameFor(leaseIds.slice(i, i + 10)));
    client.end();
    expect(await client.ended).to.include({ code: 0 });
    expect(client.verdicts.map(({ leaseId }) => leaseId)).to.deep.equal(leaseIds);
  });

  it('serves streams after the listener failed to accept a connection', async () => {
    const client = connect();
    client.send(frameFor(ids(1)));
    // The error that libuv reports, for example without free file descriptors. Nothing else causes it on
    // every system.
    failToAccept(Number(address.split(':').at(-1)));
    expect(complaints.splice(0).join())
      .to.include('failed to accept a gRPC connection')
      .and.include('EMFILE');
    engine.eager = true;
    const next = connect();
    next.send(frameFor(ids(1)));
    await eventually(
      'a new connection is served',
      async () => next.verdicts.length === 1 || undefined,
      5_000,
    );
  });

  it('opens before any message, because some clients wait for that', async () => {
    const client = connect();
    await eventually('the headers have come', async () => client.hasHeaders || undefined, 5_000);
    expect(client.frames).to.deep.equal([]);
  });

  it('works with the client of Connect', async () => {
    engine.eager = true;
    const baseUrl = `http://${address}`;
    const sessionManager = new Http2SessionManager(baseUrl);
    const client = createClient(LeasesService, createGrpcTransport({ baseUrl, sessionManager }));
    const leaseIds = ids(3);
    const told: string[] = [];
    async function* up() {
      for (const leaseId of leaseIds) yield { heartbeats: [{ leaseId, workerId: 'w' }] };
    }
    for await (const { verdicts } of client.streamHeartbeats(up())) {
      told.push(...verdicts.map(({ leaseId }) => leaseId));
    }
    sessionManager.abort();
    expect(told).to.deep.equal(leaseIds);
  });

  it('accepts compressed frames', async () => {
    engine.eager = true;
    const client = connect({ 'grpc.default_compression_algorithm': 2 });
    const leaseIds = ids(50);
    for (const leaseId of leaseIds) client.send(frameFor([leaseId]));
    expect((await client.hears(50)).map(({ leaseId }) => leaseId)).to.deep.equal(leaseIds);
  });

  it('accepts any number of small frames in one piece, and reads all of them at once', async () => {
    const session = connectHttp2(`http://${address}`);
    const headers = { ':method': 'POST', ':path': heartbeatsPath, te: 'trailers' };
    const call = session.request({ ...headers, 'content-type': 'application/grpc' });
    call.resume();
    let status: unknown;
    call.on('trailers', (trailers) => {
      status = trailers['grpc-status'];
    });
    // There is capacity for one more; what follows was already read from the connection by then.
    call.write(enveloped(many(limits.streamHeartbeats - 1)));
    await eventually('as many calls are out as may be', async () => engine.calls[3], 5_000);
    const empties = Array<Buffer>(3_000).fill(enveloped(Buffer.alloc(0)));
    call.write(Buffer.concat([enveloped(many(1)), ...empties]));
    // An answer to a later request on the same connection.
    const aside = session.request({ ...headers, 'content-type': 'application/grpc' });
    aside.end(enveloped(Buffer.alloc(0)));
    aside.resume();
    await once(aside, 'close');
    engine.eager = true;
    engine.answerAll();
    call.end();
    await once(call, 'close');
    session.destroy();
    expect(status).to.equal('0');
    expect(engine.heard).to.equal(limits.streamHeartbeats);
  });

  it('applies backpressure to the client while no frame is answered', async () => {
    const client = connect();
    const aside = connect();
    const bytes = many(1_000);
    for (let i = 0; i < 100; i++) client.send(bytes);
    await eventually(
      'as many calls are out as may be',
      async () => engine.calls.length >= 4 || undefined,
      5_000,
    );
    const { open } = engine;
    engine.eager = true;
    for (let i = 1; i <= 20; i++) {
      aside.send(frameFor(ids(1)));
      await aside.hears(i);
    }
    // The engine runs four calls, the rest of the bound waits for them, and the client keeps what exceeds it.
    expect(engine.open).to.equal(open).and.be.at.most(8_000);
    expect(client.call.writableLength).to.be.above(50);
    engine.answerAll();
    await client.hears(100_000);
    expect(client.call.writableLength).to.equal(0);
  });

  it('applies backpressure to the server while the client does not read', async () => {
    engine.eager = true;
    const client = connect();
    client.call.pause();
    const bytes = many(1_000);
    for (let i = 0; i < 100; i++) client.send(bytes);
    const aside = connect();
    let before = -1;
    // A stream counts as paused if it has not moved for a hundred round trips on another connection.
    for (let i = 1, still = 0; still < 100; i++) {
      aside.send(frameFor(ids(1)));
      await aside.hears(i);
      const heard = engine.heard - i;
      still = heard === before && heard > 0 ? still + 1 : 0;
      before = heard;
    }
    expect(before).to.be.below(60_000);
    client.call.resume();
    await client.hears(100_000);
  });

  it('ends with INVALID_ARGUMENT after a frame that cannot be decoded', async () => {
    engine.eager = true;
    const client = connect();
    client.send(frameFor(ids(2)));
    client.send(Buffer.from('0a7f61', 'hex'));
    const status = await client.ended;
    const error = fromGrpc(status as unknown as Parameters<typeof fromGrpc>[0]);
    const { field } = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
    expect(field).to.equal('heartbeats[0]');
    expect(client.verdicts).to.have.length(2);
  });

  it('ends with RESOURCE_EXHAUSTED for a frame above the size limit', async () => {
    const client = connect({ 'grpc.max_send_message_length': -1 });
    client.send(Buffer.alloc(17 * 1024 * 1024));
    expect(await client.ended).to.include({ code: Code.ResourceExhausted });
    expect(engine.calls).to.deep.equal([]);
  });

  it('accepts a frame of 16 MiB', async () => {
    engine.eager = true;
    const client = connect({ 'grpc.max_send_message_length': -1 });
    const message = 'm'.repeat(2_000);
    const one = frame([{ leaseId: newId(), workerId: 'w', message }]);
    const bytes = Buffer.concat(Array<Buffer>(8_100).fill(one));
    expect(bytes.length).to.be.within(15.5 * 1024 * 1024, 16 * 1024 * 1024);
    client.send(bytes);
    await client.hears(8_100);
  });

  it('ends with INTERNAL for an unexpected error, and writes the cause only to the log', async () => {
    const client = connect();
    client.send(frameFor(ids(1)));
    await eventually('it was asked', async () => engine.calls[0], 5_000);
    engine.calls[0]?.fail(new TypeError('secret words'));
    const status = await client.ended;
    expect(status).to.include({ code: Code.Internal });
    expect(status.details).not.to.match(/secret/);
    expect(complaints.splice(0).join()).to.match(/secret words/);
  });

  for (const [how, cut] of Object.entries({
    'the client cancels': (client: HeartbeatClient) => client.call.cancel(),
    'the connection breaks': (client: HeartbeatClient) => client.close(),
  })) {
    it(`releases all resources of a stream when ${how}`, async () => {
      const client = connect();
      const kept = ids(1);
      engine.eager = true;
      client.send(frameFor(kept));
      await client.hears(1);
      engine.eager = false;
      client.send(frameFor(ids(1)));
      const pending = await eventually('it was asked', async () => engine.calls[1], 5_000);
      cut(client);
      await eventually('the engine knows', async () => pending.signal?.aborted || undefined, 5_000);
      expect(pending.signal?.reason).to.include({ code: 'canceled' });
      pending.answer();
      engine.leaseSubscriptions.publish(kept);
      const aside = connect();
      engine.eager = true;
      aside.send(frameFor(ids(1)));
      await aside.hears(1);
      expect(engine.leaseSubscriptions.subscriptions).to.equal(1);
      expect(engine.looks).to.deep.equal([]);
    });
  }

  it('ends a stream at its deadline', async () => {
    const client = connect({ timeoutMs: 300 });
    client.send(frameFor(ids(1)));
    const pending = await eventually('it was asked', async () => engine.calls[0], 5_000);
    expect(await client.ended).to.include({ code: Code.DeadlineExceeded });
    await eventually('the engine knows', async () => pending.signal?.aborted || undefined, 5_000);
  });

  it('ends streams with OK when the server stops, after a last verdict for every lease', async () => {
    engine.eager = true;
    const clients = [connect(), connect()];
    for (const client of clients) {
      client.send(frameFor(ids(3)));
      await client.hears(3);
    }
    const since = performance.now();
    engine.draining = true;
    const drained = engine.leaseSubscriptions.drain();
    await server.stop(5_000);
    await drained;
    // Streams still open after their time are cut off after five seconds.
    expect(performance.now() - since).to.be.below(4_000);
    for (const client of clients) {
      expect(await client.ended).to.include({ code: 0 });
      const drains = client.verdicts.map(({ outcome }) => outcome.case === 'extended' && outcome.value.drain);
      expect(drains).to.deep.equal([false, false, false, true, true, true]);
    }
  });
});

describe('bidirectional streams over HTTP/1.1', () => {
  let server: Server;
  let port: number;
  before(async () => {
    const face = createConnectHandler({
      bindings: [bindingOf(new ScriptedEngine())],
      metrics: new Metrics(),
      log,
      receiving: receiveBudget,
    });
    server = createServer(
      (request, response) => void face(request, response, request.url ?? '', localPrincipal),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  /** Begins a request whose body never ends, and reads the answer. */
  const askEndlessly = (type: string): Promise<{ status: number; head: Headers; body: string }> =>
    new Promise((resolve, reject) => {
      const headers = { 'content-type': type, 'transfer-encoding': 'chunked' };
      const asking = request({ port, host: '127.0.0.1', path: heartbeatsPath, method: 'POST', headers });
      asking.on('response', (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (text) => {
          body += text;
        });
        response.on('end', () => {
          asking.destroy();
          const head = new Headers(response.headers as Record<string, string>);
          resolve({ status: response.statusCode ?? 0, head, body });
        });
      });
      asking.on('error', reject);
      asking.write('x');
    });

  const words = /^method_not_allowed: .*StreamHeartbeats.* call it over gRPC$/;
  for (const [type, status] of Object.entries({
    'application/connect+json': 200,
    'application/connect+proto': 200,
    'application/json': 501,
    'application/proto': 501,
    'text/plain': 501,
  })) {
    it(`refuses a bidirectional stream as ${type} at once`, async () => {
      const answer = await askEndlessly(type);
      expect(answer.status).to.equal(status);
      const json = JSON.parse(answer.body.slice(answer.body.indexOf('{')));
      const { code, message } = json.error ?? json;
      expect(code).to.equal('unimplemented');
      expect(message).to.match(words);
    });
  }

  it('refuses a bidirectional stream over gRPC-Web at once', async () => {
    const { status, head } = await askEndlessly('application/grpc-web+proto');
    expect([status, head.get('grpc-status')]).to.deep.equal([200, String(Code.Unimplemented)]);
    expect(decodeURIComponent(head.get('grpc-message') ?? '')).to.match(words);
  });

  it('fails in the client of Connect, and does not hang', async () => {
    const baseUrl = `http://127.0.0.1:${port}`;
    const client = createClient(LeasesService, createConnectTransport({ baseUrl, httpVersion: '1.1' }));
    async function* up() {
      yield { heartbeats: [{ leaseId: newId(), workerId: 'w' }] };
    }
    const stream = client.streamHeartbeats(up(), { timeoutMs: 5_000 });
    const error = await failure(
      (async () => {
        for await (const _ of stream);
      })(),
    );
    expect(error).to.be.instanceOf(ConnectError);
    expect(Code[error.code], error.rawMessage).to.equal(Code[Code.Unimplemented]);
  });
});
