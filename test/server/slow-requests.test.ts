/**
 * The guarantee: a request below the minimum rate keeps no memory that another request needs, and ends within
 * a bounded time over every protocol. Requests at the rate, and streams that wait between messages, are not
 * affected.
 */
import { expect } from 'chai';
import { limits } from '../../src/domain/limits.ts';
import { ReceiveBudget, receiveBudget } from '../../src/lib/http/receive-budget.ts';
import { onEveryEngine } from '../support/engines.ts';
import { frameFor, HeartbeatClient } from '../support/heartbeat-streams.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import { beginGrpc, beginHttp, drip, type SlowClient, sendSteadily } from './slow-clients.ts';

const MiB = 1024 * 1024;
const submitJobs = '/leasehold.v1.JobsService/SubmitJobs';
const submit = '/api/scheduler/jobs/submit';
const streamHeartbeats = '/leasehold.v1.LeasesService/StreamHeartbeats';
const job = '{"addon_id":"a","job_type":"t","cost_units":1}';

/** The head of a message of the given size, and of its one unknown field. */
function messageHead(bytes: number): Buffer {
  const head = Buffer.alloc(5 + 2 + 4);
  head.writeUInt32BE(bytes, 1);
  head.set([0xa2, 0x06], 5);
  const length = bytes - 2 - 4;
  for (let i = 0; i < 4; i++) head[7 + i] = ((length >> (7 * i)) & 0x7f) | (i < 3 ? 0x80 : 0);
  return head;
}

const grpcMessage = (bytes: number): Buffer =>
  Buffer.concat([messageHead(bytes), Buffer.alloc(bytes - 2 - 4, ' ')]);

/** The beginning of a message of 16 MiB. */
const half = (bytes: number): Buffer => Buffer.concat([messageHead(limits.frameBytes), Buffer.alloc(bytes)]);

const json = (bytes: number): Buffer => Buffer.from('{ '.padEnd(bytes));

/** Sends a complete request as fast as possible, and returns whether it was served. */
async function isServed(client: SlowClient, bytes: Buffer): Promise<true | undefined> {
  client.write(bytes);
  client.end();
  await eventually('an answer', async () => client.answer !== '' || undefined);
  client.close();
  return served.test(client.answer) || undefined;
}

const served = /^(HTTP\/1\.1 20[01] |grpc-status: 0)/;

describe('slow requests', () => {
  onEveryEngine((engine) => {
    // The server receives bodies before it uses the database.
    if (engine.name !== 'postgresql') return;

    const open: SlowClient[] = [];
    const opened = (client: SlowClient): SlowClient => {
      open.push(client);
      return client;
    };
    const overHttp = async (server: TestServer, path: string, type = 'application/json') =>
      opened(await beginHttp(server, path, type));
    const overGrpc = (server: TestServer, path: string) => opened(beginGrpc(server, path));
    afterEach(() => {
      for (const client of open.splice(0)) client.close();
    });

    describe('slow requests that hold the whole budget', () => {
      let server: TestServer;
      before(async () => {
        server = await startTestServer(engine);
      });
      after(() => server.stop());

      for (const { wire, other, begin, large } of [
        {
          wire: 'HTTP/1.1',
          other: 'gRPC',
          begin: async () => drip(await overHttp(server, '/api/files/acquire'), json(15 * MiB)),
          large: async () => isServed(overGrpc(server, submitJobs), grpcMessage(15 * MiB)),
        },
        {
          wire: 'gRPC',
          other: 'Connect',
          begin: async () => drip(overGrpc(server, submitJobs), half(15 * MiB)),
          large: async () => {
            const body = Buffer.from(`{"jobs":[${job}]${' '.repeat(15 * MiB)}}`);
            return isServed(await overHttp(server, submitJobs), body);
          },
        },
      ]) {
        it(`gives memory to a large request over ${other} if nine slow ones fill it over ${wire} (A4)`, async function () {
          this.timeout(60_000);
          for (let i = 0; i < 9; i++) await begin();
          await eventually('the room to be full', async () => receiveBudget.bytes > 119 * MiB || undefined);
          // This waits for less time than a slow request has while no other needs its memory.
          await eventually(`a large request over ${other} to be served`, large);
          expect(receiveBudget.bytes, 'what drips hold that were left alone').to.be.above(90 * MiB);
          for (const { close } of open) close();
          await eventually('the room to be given back', async () => receiveBudget.bytes === 0 || undefined);
        });
      }
    });

    describe('slow requests below the minimum rate', () => {
      const behindMs = 1_000;
      const receiving = new ReceiveBudget({ behindMs, sweepMs: 100 });
      let server: TestServer;
      before(async () => {
        server = await startTestServer(engine, { receiving });
      });
      after(() => server.stop());

      const detail = 'the request arrives slower than 64 KiB/s and fell 1 s behind; send it again';
      const words = `overloaded: ${detail}`;
      const grpcAnswer = [`grpc-status: 8 ${encodeURI(words)}`];
      for (const { what, begin, held, answer } of [
        {
          what: 'a body over REST',
          begin: async () => drip(await overHttp(server, submit), json(100_000)),
          held: 50_000,
          answer: ['HTTP/1.1 429 ', 'retry-after: 1', `{"detail":"${detail}","code":"overloaded"}`],
        },
        {
          what: 'a body over REST of which nothing has come',
          begin: () => overHttp(server, submit),
          held: 0,
          answer: ['HTTP/1.1 429 ', detail],
        },
        {
          what: 'a message over Connect',
          begin: async () => drip(await overHttp(server, submitJobs), json(MiB)),
          held: MiB,
          answer: ['HTTP/1.1 429 ', '"code":"resource_exhausted"', words],
        },
        {
          what: 'a message over gRPC-Web',
          begin: async () =>
            drip(await overHttp(server, submitJobs, 'application/grpc-web+proto'), half(MiB)),
          held: MiB,
          answer: ['HTTP/1.1 200 ', 'grpc-status: 8\r\n', encodeURIComponent(words)],
        },
        {
          what: 'a message over gRPC',
          begin: async () => drip(overGrpc(server, submitJobs), half(MiB)),
          held: MiB,
          answer: grpcAnswer,
        },
        {
          what: 'a complete message over gRPC whose call the client does not end',
          begin: async () => {
            const client = overGrpc(server, submitJobs);
            client.write(grpcMessage(MiB));
            return client;
          },
          held: MiB / 2,
          answer: grpcAnswer,
        },
        {
          what: 'half a message on a stream over gRPC',
          begin: async () => drip(overGrpc(server, streamHeartbeats), half(MiB)),
          held: MiB,
          answer: grpcAnswer,
        },
      ]) {
        it(`ends ${what} below the minimum rate, also with free memory, and frees its bytes (A4)`, async () => {
          const beganAt = performance.now();
          const client = await begin();
          await eventually('it to be received', async () => receiving.bytes >= held || undefined);
          await eventually('an answer', async () => client.answer !== '' || undefined);
          expect(performance.now() - beganAt).to.be.within(behindMs - 100, behindMs + 5_000);
          for (const part of answer) expect(client.answer).to.include(part);
          expect(receiving.bytes).to.equal(0);
          // The server discards later bytes, for some seconds at most.
          await eventually('it to be closed', async () => client.isOver || undefined);
        });
      }
    });

    describe('slow requests at the minimum rate', () => {
      const receiving = new ReceiveBudget({ behindMs: 1_000, sweepMs: 50 });
      let server: TestServer;
      before(async () => {
        server = await startTestServer(engine, { receiving });
      });
      after(() => server.stop());

      for (const { wire, begin, bytes } of [
        {
          wire: 'REST',
          begin: () => overHttp(server, submit),
          bytes: Buffer.from(job.padEnd(600_000)),
        },
        {
          wire: 'gRPC',
          begin: () => overGrpc(server, submitJobs),
          bytes: grpcMessage(600_000),
        },
      ]) {
        it(`serves requests over ${wire} at the minimum rate, however long they take (A4)`, async () => {
          const client = await begin();
          const beganAt = performance.now();
          await sendSteadily(client, bytes, 4 * limits.receivingBytesPerS);
          expect(performance.now() - beganAt).to.be.above(2_000);
          await eventually('an answer', async () => client.answer !== '' || undefined);
          expect(client.answer).to.match(served);
        });
      }

      it('measures the rate per message on a stream, which may pause between messages (A4)', async () => {
        using stream = new HeartbeatClient(server.grpc);
        for (let i = 1; i <= 3; i++) {
          stream.send(frameFor([crypto.randomUUID()]));
          await stream.hears(i);
          await new Promise((resolve) => setTimeout(resolve, 1_400));
        }
        expect(stream.verdicts).to.have.length(3);
      });
    });
  });
});
