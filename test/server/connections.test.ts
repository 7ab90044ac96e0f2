/** The guarantee: connections are bounded, and idle and old ones end without a lost call. */
import { once } from 'node:events';
import { type ClientHttp2Session, connect as connectHttp2, constants } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { AcquireLeaseRequestSchema } from '../../gen/leasehold/v1/leases_pb.js';
import type { Config } from '../../src/config.ts';
import { onEveryEngine } from '../support/engines.ts';
import { frame, HeartbeatClient } from '../support/heartbeat-streams.ts';
import { leasedJob } from '../support/leases-api.ts';
import { readMetrics } from '../support/metrics-text.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import { WorkClient } from '../support/work-streams.ts';

const portOf = (address: string): number => Number(address.split(':').at(-1));

/** A client's end that remembers what it reads. */
interface Peer {
  socket: Socket;
  said: () => string;
  closed: Promise<unknown>;
}

async function open(address: string, localAddress = '127.0.0.1'): Promise<Peer> {
  const socket = connectTcp({ host: '127.0.0.1', port: portOf(address), localAddress });
  let read = '';
  socket.on('data', (bytes) => {
    read += bytes.toString('latin1');
  });
  socket.on('error', () => {});
  const closed = once(socket, 'close');
  await once(socket, 'connect');
  return { socket, said: () => read, closed };
}

const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`;

/** Whether the server serves a connection, and not only its system accepts it. */
async function isServed({ socket, said }: Peer): Promise<boolean> {
  if (!socket.destroyed) socket.write(get('/healthz'));
  await eventually('an answer or the end', async () => said() !== '' || socket.destroyed || undefined);
  return said().startsWith('HTTP/1.1 200');
}

onEveryEngine((engine) => {
  // Connections do not depend on the database.
  if (engine.name !== 'embedded') return;

  describe('connections', () => {
    let server: TestServer;
    const peers: Peer[] = [];
    const start = async (settings: Partial<Config>) => {
      server = await startTestServer(engine, { settings });
    };
    const dial = async (address: string, from?: string): Promise<Peer> => {
      const peer = await open(address, from);
      peers.push(peer);
      return peer;
    };
    afterEach(async () => {
      for (const { socket } of peers.splice(0)) socket.destroy();
      await server.stop();
    });

    it('are refused beyond the limit of an address, on both ports, and counted', async () => {
      await start({ maxConnectionsPerAddress: 3 });
      const first = await dial(server.http);
      expect(await isServed(first)).to.equal(true);
      await dial(server.grpc);
      await dial(server.grpc);
      await eventually('three to be open', async () => {
        const metrics = await readMetrics(server.http).catch(() => undefined);
        return metrics === undefined || undefined;
      });
      const refused = [await dial(server.http), await dial(server.grpc)];
      for (const { closed, said } of refused) {
        await closed;
        expect(said()).to.equal('');
      }
      expect(await isServed(await dial(server.http, '127.0.0.2'))).to.equal(true);
      first.socket.destroy();
      await eventually(
        'room for another one',
        async () => (await isServed(await dial(server.http))) || undefined,
      );
      for (const { socket } of peers) socket.destroy();
      const text = await eventually('the metrics', () => readMetrics(server.http).catch(() => undefined));
      expect(
        text.value('leasehold_connections_refused_total', { port: 'http', reason: 'address' }),
      ).to.be.above(0);
      expect(text.value('leasehold_connections_refused_total', { port: 'grpc', reason: 'address' })).to.equal(
        1,
      );
      expect(text.value('leasehold_connections', { port: 'http' })).to.be.within(1, 3);
      const complaints = server.complaints.filter(({ msg }) => msg === 'refused connections');
      expect(complaints).to.have.length(1);
      expect(complaints[0]).to.include({ reason: 'address', limit: 3, address: '127.0.0.1' });
    });

    it('are refused beyond the limit of the server, except on the port for metrics', async () => {
      await start({ maxConnections: 2, metricsAddr: { host: '127.0.0.1', port: 0 } });
      const [one] = [await dial(server.http), await dial(server.grpc, '127.0.0.2')];
      expect(await isServed(one)).to.equal(true);
      const refused = await dial(server.http, '127.0.0.3');
      await refused.closed;
      const { port } = server.running.metricsAddress ?? expect.fail('there is no port for metrics');
      expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).to.equal(200);
      const text = await readMetrics(`http://127.0.0.1:${port}`);
      expect(text.value('leasehold_connections_refused_total', { port: 'http', reason: 'total' })).to.equal(
        1,
      );
    });

    it('of a trusted proxy have no limit by address', async () => {
      await start({ maxConnectionsPerAddress: 1, trustedProxies: ['127.0.0.9/32'] });
      for (let i = 0; i < 3; i++) expect(await isServed(await dial(server.http, '127.0.0.9'))).to.equal(true);
      expect(await isServed(await dial(server.http))).to.equal(true);
      expect(await isServed(await dial(server.http))).to.equal(false);
    });

    it('end when they are idle, unless a stream is open', async () => {
      await start({ connectionIdleS: 1 });
      const idle = connectHttp2(`http://${server.grpc}`);
      const http = await dial(server.http);
      expect(await isServed(http)).to.equal(true);
      using stream = new HeartbeatClient(server.grpc);
      stream.send(frame([]));
      await Promise.all([once(idle, 'close'), http.closed]);
      stream.send(frame([]));
      await eventually('the answer on the stream', async () => stream.frames.length >= 2 || undefined);
    });

    it('end at their age: streams are told to leave first', async () => {
      await start({ connectionAgeS: 1 });
      const { lease } = await leasedJob(server);
      using stream = new HeartbeatClient(server.grpc);
      const beat = frame([{ leaseId: lease.lease_id, workerId: 'worker-1' }]);
      stream.send(beat);
      const [young] = await stream.hears(1);
      expect(young?.outcome.value).to.include({ drain: false });
      using work = new WorkClient(server.grpc);
      work.send({ workerId: 'w' });
      const session: ClientHttp2Session = connectHttp2(`http://${server.grpc}`);
      const [[code], ended] = await Promise.all([once(session, 'goaway'), work.ended]);
      expect(code).to.equal(0);
      expect(ended).to.include({ code: 0 });
      expect(work.frames.some(({ drain }) => drain)).to.equal(true);
      await eventually('a verdict that says so', async () => {
        stream.send(beat);
        const told = (await stream.hears(stream.verdicts.length + 1)).at(-1);
        return told?.outcome.case === 'extended' && told.outcome.value.drain ? true : undefined;
      });
    });

    /** Begins calls that wait for work, and cancels them after a while. */
    const cancelCalls = async (session: ClientHttp2Session, count: number, afterMs: number) => {
      const message = toBinary(
        AcquireLeaseRequestSchema,
        create(AcquireLeaseRequestSchema, { workerId: 'w', waitMs: 20_000 }),
      );
      const streams = Array.from({ length: count }, () => {
        const stream = session.request({
          ':method': 'POST',
          ':path': '/leasehold.v1.LeasesService/AcquireLease',
          'content-type': 'application/grpc',
          te: 'trailers',
        });
        stream.on('error', () => {});
        stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]));
        return stream;
      });
      await new Promise((resolve) => setTimeout(resolve, afterMs));
      for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
    };

    it('close where calls are cancelled as they begin; their address is refused for a while', async () => {
      await start({});
      const from = (localAddress: string) =>
        connectHttp2(`http://${server.grpc}`, {
          createConnection: () => connectTcp({ host: '127.0.0.1', port: portOf(server.grpc), localAddress }),
        });
      const hostile = from('127.0.0.4');
      hostile.on('error', () => {});
      await once(hostile, 'connect');
      const closed = once(hostile, 'close');
      while (!hostile.closed && !hostile.destroyed) await cancelCalls(hostile, 60, 5);
      await closed;
      const refused = await dial(server.grpc, '127.0.0.4');
      await refused.closed;
      expect(await isServed(await dial(server.http))).to.equal(true);
      const text = await readMetrics(server.http);
      expect(text.value('leasehold_connections_refused_total', { port: 'grpc', reason: 'conduct' })).to.equal(
        1,
      );
      expect(server.complaints.map(({ msg }) => msg)).to.include('closed a connection for its conduct');
    });

    it('stay open where calls are cancelled after they have waited', async () => {
      await start({});
      const session = connectHttp2(`http://${server.grpc}`);
      await once(session, 'connect');
      await cancelCalls(session, 300, 500);
      await new Promise((resolve, reject) =>
        session.ping((error) => (error ? reject(error) : resolve(true))),
      );
      expect(session.closed).to.equal(false);
      expect(server.complaints).to.deep.equal([]);
      session.close();
    });

    it('of HTTP end at their age, after the request that is open on them', async () => {
      await start({ connectionAgeS: 1 });
      const idle = await dial(server.http);
      const busy = await dial(server.http);
      expect(await isServed(idle)).to.equal(true);
      const body = JSON.stringify({ worker_id: 'w', streams: ['s'], max_wait_ms: 3_000 });
      busy.socket.write(
        'POST /internal/worker/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n' +
          `content-length: ${body.length}\r\n\r\n${body}`,
      );
      await idle.closed;
      await eventually('the answer', async () => busy.said().includes('"claimed":false') || undefined);
      busy.socket.write(get('/healthz'));
      await busy.closed;
      expect(busy.said().match(/HTTP\/1\.1 200/g)).to.have.length(2);
      expect(busy.said()).to.match(/connection: close/i);
    });

    it('are answered 431 where a request has more than 100 headers', async () => {
      await start({});
      const peer = await dial(server.http);
      const headers = (count: number) => Array.from({ length: count }, (_, i) => `x-${i}: 1\r\n`).join('');
      peer.socket.write(`GET /healthz HTTP/1.1\r\nhost: localhost\r\n${headers(99)}\r\n`);
      await eventually('an answer', async () => peer.said().startsWith('HTTP/1.1 200') || undefined);
      peer.socket.write(`GET /healthz HTTP/1.1\r\nhost: localhost\r\n${headers(150)}\r\n`);
      await eventually('a refusal', async () => /HTTP\/1\.1 431 /.test(peer.said()) || undefined);
    });
  });
});
