/**
 * The guarantee: a gRPC message counts against the receive budget only while it is unfinished, for any number
 * of messages on a stream and any boundaries of the pieces that arrive. Time in which the server does not
 * read does not count against the client.
 */
import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { expect } from 'chai';
import { StreamHeartbeatsRequestSchema } from '../../../gen/leasehold/v1/leases_pb.js';
import { limits } from '../../../src/domain/limits.ts';
import type { HealthMonitor } from '../../../src/engine/maintenance/health-monitor.ts';
import { ReceiveBudget, receiveBudget } from '../../../src/lib/http/receive-budget.ts';
import { createGrpcServer, type GrpcServer } from '../../../src/rpc/grpc/server.ts';
import { Metrics } from '../../../src/telemetry/metrics.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { bindingOf, frameFor, heartbeatsPath, ScriptedEngine } from '../../support/heartbeat-streams.ts';
import { silentLog } from '../../support/jobs.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

/** Larger than a DATA frame, so that each message arrives in pieces. */
const paddingBytes = 100_000;
const paddingField = 1_000;
const headBytes = 5;

/** A frame of one heartbeat of an unknown lease, made large by a field that the server does not know. */
function message(): Buffer {
  const frame = create(StreamHeartbeatsRequestSchema, {
    heartbeats: [{ leaseId: crypto.randomUUID(), workerId: 'w' }],
  });
  const padding = new BinaryWriter().tag(paddingField, WireType.LengthDelimited);
  const body = Buffer.concat([
    toBinary(StreamHeartbeatsRequestSchema, frame),
    padding.bytes(new Uint8Array(paddingBytes)).finish(),
  ]);
  return enveloped(body);
}

/** A message in the length-prefixed form of gRPC. */
function enveloped(body: Buffer): Buffer {
  const head = Buffer.alloc(headBytes);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/** A frame of one heartbeat. Concatenated frames are one frame with all of their heartbeats. */
const one = frameFor([crypto.randomUUID()]);

function openHeartbeats(session: ClientHttp2Session): ClientHttp2Stream {
  session.on('error', () => {});
  const stream = session.request({
    ':method': 'POST',
    ':path': heartbeatsPath,
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  stream.on('error', () => {});
  return stream;
}

/** Counts the answers on a stream. */
function countAnswers(stream: ClientHttp2Stream): () => number {
  let answers = 0;
  let pending = Buffer.alloc(0);
  stream.on('data', (piece: Buffer) => {
    pending = Buffer.concat([pending, piece]);
    for (;;) {
      const length = pending.length < headBytes ? Infinity : headBytes + pending.readUInt32BE(1);
      if (pending.length < length) return;
      pending = pending.subarray(length);
      answers += 1;
    }
  });
  return () => answers;
}

describe('reception of gRPC messages', () => {
  onEveryEngine((engine) => {
    let server: TestServer;
    let session: ClientHttp2Session;
    let stream: ClientHttp2Stream;
    let answers: () => number;
    beforeEach(async () => {
      server = await startTestServer(engine);
      session = connect(`http://${server.grpc}`);
      stream = openHeartbeats(session);
      answers = countAnswers(stream);
    });
    afterEach(async () => {
      session.destroy();
      await eventually('the room to be given back', async () => receiveBudget.bytes === 0 || undefined);
      await server.stop();
    });

    it('stops counting a complete message, even if its last piece starts the next one (A4)', async () => {
      const messages = Array.from({ length: 40 }, message);
      const half = Math.floor(paddingBytes / 3);
      let rest: Buffer = Buffer.alloc(0);
      for (const [i, one] of messages.entries()) {
        if (!stream.write(Buffer.concat([rest, one.subarray(0, half)]))) await once(stream, 'drain');
        rest = one.subarray(half);
        // Each write waits for the answer to the previous one, so that no two writes are joined.
        await eventually('the message before to be answered', async () => answers() >= i || undefined);
      }
      expect(receiveBudget.bytes).to.be.within(1, paddingBytes);
      stream.write(rest);
      await eventually('all to be answered', async () => answers() === messages.length || undefined);
      expect(receiveBudget.bytes).to.equal(0);
    });

    it('leaves no listener on a stream that carries many messages (A4)', async () => {
      const warnings: string[] = [];
      const note = ({ name }: Error) => warnings.push(name);
      process.on('warning', note);
      try {
        for (let i = 1; i <= 15; i++) {
          stream.write(message());
          await eventually('the message to be answered', async () => answers() === i || undefined);
        }
      } finally {
        process.off('warning', note);
      }
      expect(warnings).not.to.include('MaxListenersExceededWarning');
    });
  });
});

describe('gRPC messages that the server has stopped reading', () => {
  const receiving = new ReceiveBudget({ behindMs: 300, sweepMs: 30 });
  const engine = new ScriptedEngine();
  let server: GrpcServer;
  let session: ClientHttp2Session;
  before(async () => {
    server = createGrpcServer({
      bindings: [bindingOf(engine)],
      health: { onReady: () => {} } as unknown as HealthMonitor,
      metrics: new Metrics(),
      log: silentLog,
      receiving,
    });
    const { host, port } = await server.listen({ host: '127.0.0.1', port: 0 });
    session = connect(`http://${host}:${port}`);
  });
  after(async () => {
    session.destroy();
    await server.stop(1_000);
  });

  it('holds a client to no rate while the server does not read its message (A4)', async () => {
    const stream = openHeartbeats(session).resume();
    // The server stops reading at the number of heartbeats that it may have open.
    const full = enveloped(Buffer.concat(Array<Buffer>(limits.streamHeartbeats).fill(one)));
    const next = enveloped(Buffer.concat([one, one]));
    const cut = next.length - 20;
    stream.write(Buffer.concat([full, next.subarray(0, cut)]));
    await eventually('the server to read no further', async () => engine.calls[3]);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(receiving.bytes, 'half a message').to.equal(cut - headBytes);
    engine.eager = true;
    engine.answerAll();
    await eventually(
      'heartbeats to be heard',
      async () => engine.heard === limits.streamHeartbeats || undefined,
    );
    stream.write(next.subarray(cut));
    await eventually(
      'the rest to be heard',
      async () => engine.heard === limits.streamHeartbeats + 2 || undefined,
    );
    expect(receiving.bytes).to.equal(0);
  });
});
