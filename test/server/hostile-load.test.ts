/**
 * The guarantee: clients that send slowly, in tiny pieces or incompletely, or that watch in great numbers,
 * hold a bounded amount of memory. The server frees it, and serves other clients in the meantime.
 */
import { once } from 'node:events';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { receiveBudget } from '../../src/lib/http/receive-budget.ts';
import type { Database } from '../../src/store/database.ts';
import { onEveryEngine } from '../support/engines.ts';
import { caller, engineOn, submitted } from '../support/jobs.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import { connect } from '../support/server-clients.ts';

const MiB = 1024 * 1024;
const budgetBytes = 128 * MiB;
const job = { addon_id: 'a', job_type: 't', cost_units: 1 };

/** A connection that keeps what it reads, and survives when the server closes it. */
async function open(server: TestServer): Promise<{ socket: Socket; text: () => string }> {
  const { hostname, port } = new URL(server.http);
  const socket = connectTcp(Number(port), hostname);
  let read = '';
  socket.on('data', (chunk) => {
    read += chunk;
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  return { socket, text: () => read };
}

const headOf = (path: string, more: string) =>
  `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n${more}\r\n\r\n`;

/** A message with the given number of bytes in an unknown field. */
function unknownField(bytes: number): Buffer {
  const message = Buffer.alloc(bytes);
  const [tagBytes, lengthBytes] = [2, 4];
  message.set([0xa2, 0x06]);
  const length = bytes - tagBytes - lengthBytes;
  for (let i = 0; i < lengthBytes; i++)
    message[tagBytes + i] = ((length >> (7 * i)) & 0x7f) | (i < lengthBytes - 1 ? 0x80 : 0);
  return message;
}

async function closeAll(sockets: readonly Socket[]): Promise<void> {
  for (const socket of sockets) socket.destroy();
  await eventually('the room to be given back', async () => receiveBudget.bytes === 0 || undefined);
}

describe('hostile load', () => {
  onEveryEngine((engine) => {
    if (engine.name !== 'postgresql') return;
    let server: TestServer;
    let client: ReturnType<typeof connect>;
    before(async () => {
      server = await startTestServer(engine);
      client = connect(server);
    });
    after(async () => {
      client.close();
      await server.stop();
    });

    it('refuses bodies in tiny chunks with 400, closes their connections and serves others (A3)', async () => {
      const hostile = await Promise.all(Array.from({ length: 20 }, () => open(server)));
      const tiny = '1\r\n \r\n'.repeat(20_000);
      for (const { socket } of hostile) {
        socket.write(headOf('/api/scheduler/jobs/submit', 'transfer-encoding: chunked'));
        socket.write(tiny);
      }
      for (let i = 0; i < 20; i++) {
        const answer = await client.rest('POST', '/api/scheduler/jobs/submit', job);
        expect(answer.status).to.equal(201);
      }
      await eventually(
        'all of them to be refused and closed',
        async () => hostile.every(({ socket }) => socket.closed || socket.readableEnded) || undefined,
      );
      for (const { text } of hostile) expect(text()).to.match(/^HTTP\/1\.1 400 .*pieces/s);
      await closeAll(hostile.map(({ socket }) => socket));
    });

    it('holds at most 128 MiB of unfinished bodies, and frees all of it (A4)', async () => {
      const hostile = await Promise.all(Array.from({ length: 12 }, () => open(server)));
      const half = Buffer.alloc(15 * MiB, 0x20);
      for (const { socket } of hostile) {
        socket.write(headOf('/leasehold.v1.JobsService/SubmitJobs', `content-length: ${16 * MiB}`));
        socket.write(half);
      }
      await eventually('the room to be full', async () => receiveBudget.bytes > budgetBytes / 2 || undefined);
      let most = 0;
      for (let i = 0; i < 20; i++) {
        most = Math.max(most, receiveBudget.bytes);
        const answer = await client.rest('POST', '/api/scheduler/jobs/submit', job);
        expect(answer.status).to.equal(201);
      }
      expect(most).to.be.at.most(budgetBytes);
      // Large requests of other clients get the memory of those that stalled.
      const large = { ...job, payload: { text: 'x'.repeat(900_000) } };
      await eventually('a large request to be served', async () => {
        const answer = await client.rest('POST', '/api/scheduler/jobs/submit', large);
        return answer.status === 201 || undefined;
      });
      await closeAll(hostile.map(({ socket }) => socket));
    });

    it('holds at most 128 MiB of unfinished gRPC messages, and frees all of it (A4)', async () => {
      const session: ClientHttp2Session = connectHttp2(`http://${server.grpc}`);
      session.on('error', () => {});
      const head = Buffer.from([0, 0, 0xff, 0xff, 0xff]);
      const half = Buffer.alloc(15 * MiB);
      const streams = Array.from({ length: 12 }, () => {
        const stream = session.request({
          ':method': 'POST',
          ':path': '/leasehold.v1.JobsService/SubmitJobs',
          'content-type': 'application/grpc',
          te: 'trailers',
        });
        stream.on('error', () => {});
        stream.write(head);
        stream.write(half);
        return stream;
      });
      await eventually('the room to be full', async () => receiveBudget.bytes > budgetBytes / 2 || undefined);
      let most = 0;
      for (let i = 0; i < 20; i++) {
        most = Math.max(most, receiveBudget.bytes);
        await client.jobs.listJobs({ limit: 1 });
      }
      expect(most).to.be.at.most(budgetBytes);
      for (const stream of streams) stream.close();
      session.destroy();
      await eventually('the room to be given back', async () => receiveBudget.bytes === 0 || undefined);
    });

    for (const [what, head] of [
      ['unfinished gRPC messages', [0, 0, 0xff, 0xff, 0xff]],
      ['complete gRPC messages of calls whose client has not ended its side', [0, 0, 0xf0, 0, 0]],
    ] as const) {
      it(`counts ${what}, and closes the streams of those that it evicts (A4)`, async () => {
        const sessions = Array.from({ length: 10 }, () => connectHttp2(`http://${server.grpc}`));
        const statuses: string[] = [];
        const streams = sessions.map((session) => {
          session.on('error', () => {});
          const stream = session.request({
            ':method': 'POST',
            ':path': '/leasehold.v1.JobsService/SubmitJobs',
            'content-type': 'application/grpc',
            te: 'trailers',
          });
          stream.on('error', () => {});
          stream.on('response', (headers) => statuses.push(String(headers['grpc-message'])));
          stream.write(Buffer.from(head));
          return stream;
        });
        for (const stream of streams.slice(0, 8)) stream.write(unknownField(15 * MiB));
        await eventually('the room to be nearly full', async () => {
          return receiveBudget.bytes > 8 * 14 * MiB || undefined;
        });
        // The server may evict a request that has stalled for a second.
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        streams[8]?.write(unknownField(14 * MiB));
        await eventually('a stalled stream to be closed', async () => {
          return streams.slice(0, 8).some((stream) => stream.closed) || undefined;
        });
        expect(statuses.some((status) => status.startsWith('overloaded'))).to.equal(true);
        expect(receiveBudget.bytes).to.be.at.most(budgetBytes);
        for (const session of sessions) session.destroy();
        await eventually('the room to be given back', async () => receiveBudget.bytes === 0 || undefined);
      });
    }

    it('decompresses a bounded amount at a time (A4)', async function () {
      this.timeout(90_000);
      const before = process.memoryUsage().arrayBuffers;
      let most = 0;
      const sampling = setInterval(() => {
        most = Math.max(most, process.memoryUsage().arrayBuffers - before);
      }, 2);
      const packed = gzipSync(`{"jobs":[${' '.repeat(15 * MiB)}]}`);
      const answers = await Promise.all(
        Array.from({ length: 30 }, async () => {
          const answer = await fetch(`${server.http}/leasehold.v1.JobsService/SubmitJobs`, {
            method: 'POST',
            headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
            body: packed,
          });
          await answer.text();
          return answer.status;
        }),
      );
      const message = unknownField(15 * MiB);
      const packedMessage = gzipSync(message);
      const head = Buffer.from([1, 0, 0, 0, 0]);
      head.writeUInt32BE(packedMessage.length, 1);
      const session = connectHttp2(`http://${server.grpc}`);
      await Promise.all(
        Array.from({ length: 30 }, async () => {
          const stream = session.request({
            ':method': 'POST',
            ':path': '/leasehold.v1.JobsService/SubmitJobs',
            'content-type': 'application/grpc',
            'grpc-encoding': 'gzip',
            te: 'trailers',
          });
          stream.resume().end(Buffer.concat([head, packedMessage]));
          const [trailers] = await once(stream, 'trailers');
          answers.push(Number(trailers['grpc-status']));
        }),
      );
      session.destroy();
      clearInterval(sampling);
      expect(answers).to.have.length(60);
      expect(new Set(answers)).to.deep.equal(new Set([200, 0]));
      expect(most).to.be.below(15 * 15 * MiB);
    });
  });

  onEveryEngine((engine) => {
    it('runs one statement for all watchers of unchanged jobs (A6)', async () => {
      await using store = await engine.open();
      const texts: string[] = [];
      const query: Database['query'] = (text, params, signal) => {
        texts.push(text);
        return store.database.query<never>(text, params, signal);
      };
      const database = new Proxy(store.database, {
        get: (target, name) => {
          if (name === 'query') return query;
          const value = Reflect.get(target, name);
          return typeof value === 'function' ? value.bind(target) : value;
        },
      });
      const watching = engineOn(database);
      const jobs = await submitted(watching, ...Array.from({ length: 30 }, () => ({})));
      const streams = jobs.map(({ jobId }) => watching.jobs.watch(jobId, null, caller));
      for (const stream of streams) await stream.next();
      const next = streams.map((stream) => stream.next());
      for (const one of next) one.catch(() => {});
      /** The statements of one sweep, after the watchers' own reads have ended. */
      const sweep = async () => {
        texts.length = 0;
        await watching.services.notifier.runOnce();
        let before = -1;
        await eventually('the watchers to be done', async () => {
          const isDone = texts.length === before;
          before = texts.length;
          await new Promise((resolve) => setTimeout(resolve, 200));
          return isDone || undefined;
        });
        return texts.length;
      };
      await sweep();
      expect(await sweep()).to.equal(1);
      await store.database.query('update live_jobs set note = $1 where job_id = $2', [
        'seen',
        jobs[7]?.jobId,
      ]);
      expect(await sweep()).to.be.within(2, 4);
      watching.services.jobQueries.stop();
      await Promise.allSettled(next);
      await watching.stop();
    });
  });
});
