import { Code } from '@connectrpc/connect';
import { expect } from 'chai';
import type { OnDuplicate, Priority } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { newAddon, submit } from '../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { type Connection, expectRpcError, failure, pathOf, wires } from '../support/wires.ts';

/** Characters of two UTF-16 units each: a cut at any round length splits some of them. */
const emoji = '😀'.repeat(60);
const cutsAnywhere = Array.from({ length: 12 }, (_, i) => 'a'.repeat(70 + i) + emoji);
const hostileIds: Record<string, string[]> = {
  'that are cut within a character': [`${'a'.repeat(78)}😀😀`, ...cutsAnywhere],
  'that are all emoji': [emoji, `x${emoji}`, '👩‍👩‍👧‍👦'.repeat(30)],
  'that have NUL and line breaks in them': ['\0', `${'a'.repeat(79)}\0\r\n`, '\r\ngrpc-status: 0'],
  'that look like the codes of others': ['%', '%F0%9F', '%%%', '\\ud83d', '"'.repeat(100)],
};

interface Said {
  code: Code;
  message: string;
}

/** What gRPC-Web returns in headers or in its last frame for a JSON message that no client would write. */
async function postGrpcWebJson(server: TestServer, method: string, json: string): Promise<Said> {
  const message = Buffer.from(json);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const response = await fetch(`${server.http}${pathOf(method)}`, {
    method: 'POST',
    headers: { 'content-type': 'application/grpc-web+json', 'x-grpc-web': '1' },
    body: new Uint8Array(Buffer.concat([head, message])),
  });
  const trailer = Buffer.from(await response.arrayBuffer()).toString();
  const told = (name: string) =>
    response.headers.get(name) ?? new RegExp(`${name}: ?(.*)\\r\\n`).exec(trailer)?.[1] ?? '';
  return { code: Number(told('grpc-status')), message: decodeURIComponent(told('grpc-message')) };
}

onEveryEngine((engine) => {
  describe('text that the server truncates in an error', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    afterEach(async () => {
      await submit(server, {});
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    for (const [wire, connect] of Object.entries(wires)) {
      describe(`over ${wire}`, () => {
        let connection: Connection;
        before(() => {
          connection = connect(server);
        });
        after(() => connection.close());

        for (const [what, ids] of Object.entries(hostileIds)) {
          it(`answers job_not_found in well-formed text for ids ${what}`, async () => {
            const { jobs } = connection;
            for (const jobId of ids) {
              const calls = [
                jobs.getJob({ jobId }),
                jobs.cancelJob({ jobId }),
                jobs.retryJob({ jobId }),
                jobs.listJobEvents({ jobId }),
                jobs.updateJobStatus({ jobId, state: 2 }),
              ];
              for (const error of await Promise.all(calls.map(failure))) {
                expectRpcError(error, Code.NotFound, 'job_not_found');
                expect(error.rawMessage.isWellFormed(), error.rawMessage).to.equal(true);
              }
            }
          });
        }

        it('answers job_not_found for a watch of a hostile id', async () => {
          const follow = async (jobId: string) => {
            for await (const _ of connection.jobs.watchJob({ jobId })) expect.fail('there is no such job');
          };
          for (const jobId of cutsAnywhere) {
            expectRpcError(await failure(follow(jobId)), Code.NotFound, 'job_not_found');
          }
        });

        it('refuses a hostile cursor by name', async () => {
          for (const text of cutsAnywhere) {
            const cursor = text.slice(0, 90).toWellFormed();
            const error = await failure(connection.jobs.listJobs({ cursor }));
            expect(expectRpcError(error, Code.InvalidArgument, 'invalid_request').field).to.equal('cursor');
          }
        });
      });
    }

    it('refuses an enum name that a cut would break, over gRPC-Web in JSON', async () => {
      for (const priority of [...cutsAnywhere, emoji]) {
        const json = JSON.stringify({ addonId: 'a', jobType: 't', costUnits: 1, priority });
        const { code, message } = await postGrpcWebJson(server, 'SubmitJob', json);
        expect(Code[code], message).to.equal(Code[Code.InvalidArgument]);
        expect(message).to.match(/^invalid_request: priority/);
        expect(message.isWellFormed()).to.equal(true);
      }
    });

    it('answers in well-formed text for ids and enum names with half a surrogate pair', async () => {
      for (const id of ['\\ud83d', `${'a'.repeat(78)}\\ude00\\ud83d`, `${'a'.repeat(200)}\\udfff`]) {
        const { code, message } = await postGrpcWebJson(server, 'GetJob', `{"jobId":"${id}"}`);
        expect(Code[code], message).to.be.oneOf([Code[Code.NotFound], Code[Code.InvalidArgument]]);
        expect(message.isWellFormed()).to.equal(true);
        const word = `{"addonId":"a","jobType":"t","costUnits":1,"priority":"${id}"}`;
        const answer = await postGrpcWebJson(server, 'SubmitJob', word);
        expect(Code[answer.code], answer.message).to.equal(Code[Code.InvalidArgument]);
      }
    });
  });

  describe('the path of an invalid field in a batch', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const binary = Object.entries(wires).filter(([wire]) => !/JSON/.test(wire));
    for (const [wire, connect] of binary) {
      it(`names the field with its position in the batch over ${wire}`, async () => {
        const connection = connect(server);
        try {
          const least = { addonId: newAddon(), jobType: 't', costUnits: 1 };
          const yearTenThousand = { seconds: 253_402_300_800n, nanos: 0 };
          const { outcomes } = await connection.jobs.submitJobs({
            jobs: [
              { ...least, constraints: { gpu_required: 'x' } },
              { ...least, runAt: yearTenThousand },
              { ...least, priority: 99 as Priority },
              { ...least, onDuplicate: 99 as OnDuplicate },
              { ...least, constraints: { a_heavy: 1 } },
              { ...least, costUnits: 0 },
              { ...least, tags: ['fine', ''] },
              { ...least, payload: { text: 'x'.repeat(1_100_000) } },
              least,
            ],
          });
          const told = outcomes.map(({ outcome }) =>
            outcome.case === 'error' ? outcome.value.field : outcome.case,
          );
          expect(told).to.deep.equal([
            'jobs[0].constraints.gpu_required',
            'jobs[1].run_at',
            'jobs[2].priority',
            'jobs[3].on_duplicate',
            'jobs[4].constraints.a_heavy',
            'jobs[5].cost_units',
            'jobs[6].tags[1]',
            'jobs[7].payload',
            'submitted',
          ]);
          for (const [i, { outcome }] of outcomes.slice(0, -1).entries()) {
            if (outcome.case !== 'error') throw new Error(`job ${i} was submitted`);
            expect(outcome.value.detail).to.include(told[i]);
          }
        } finally {
          connection.close();
        }
      });
    }

    it('names the position in the batch also for an unknown enum name', async () => {
      const least = { addonId: 'a', jobType: 't', costUnits: 1 };
      const response = await fetch(`${server.http}${pathOf('SubmitJobs')}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jobs: [least, { ...least, priority: 'SOON' }] }),
      });
      const body = (await response.json()) as { message: string };
      expect(response.status).to.equal(400);
      expect(body.message).to.match(/^invalid_request: jobs\[1\]\.priority/);
    });
  });
});
