/**
 * The guarantee: answers are bounded in bytes as well as in jobs. Jobs that do not fit come with the next
 * answer, and none is lost.
 */
import { toBinary } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  ClaimJobsResponseSchema,
  JobState,
  JobsService,
  ListJobsResponseSchema,
} from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { get, jobsPath, post } from '../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { grpcJsTransport, type JobsClient } from '../support/wires.ts';

const mebibyte = 1024 * 1024;
/** The default message limit of gRPC clients. */
const answerBytesMax = 4 * mebibyte;
const jobCount = 60;
const jobBytes = 1_000_000;
const addonId = 'large';

/** A page or a claim: its jobs, its size on the wire, and the cursor of the next page. */
interface Part {
  ids: string[];
  bytes: number;
  cursor: string | undefined;
}

onEveryEngine((engine) => {
  describe('sixty jobs of a megabyte each', () => {
    let server: TestServer;
    let client: GrpcClient;
    let jobs: JobsClient;
    const submitted: string[] = [];
    before(async () => {
      server = await startTestServer(engine);
      // With the default message limit of clients.
      client = new GrpcClient(server.grpc, credentials.createInsecure());
      jobs = createClient(JobsService, grpcJsTransport(client));
      const payload = { text: 'x'.repeat(jobBytes - 11) };
      expect(JSON.stringify(payload)).to.have.length(jobBytes);
      const one = { addonId, jobType: 't', costUnits: 1, payload };
      for (let sent = 0; sent < jobCount; sent += 15) {
        const { outcomes } = await jobs.submitJobs({ jobs: Array.from({ length: 15 }, () => one) });
        for (const { outcome } of outcomes)
          if (outcome.case === 'submitted') submitted.push(outcome.value.jobId);
      }
      expect(submitted).to.have.length(jobCount);
    });
    after(async () => {
      client.close();
      await server.stop();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));

    const faces: Record<
      string,
      { list(cursor?: string, queued?: boolean): Promise<Part>; claim(): Promise<Part> }
    > = {
      gRPC: {
        async list(cursor, queued = false) {
          const states = queued ? [JobState.QUEUED] : [];
          const answer = await jobs.listJobs({ addonId, limit: 200, cursor, states });
          return {
            ids: answer.jobs.map(({ jobId }) => jobId),
            bytes: toBinary(ListJobsResponseSchema, answer).length,
            cursor: answer.nextCursor,
          };
        },
        async claim() {
          const answer = await jobs.claimJobs({ workerId: 'w', addonId, limit: jobCount });
          return {
            ids: answer.jobs.map(({ jobId }) => jobId),
            bytes: toBinary(ClaimJobsResponseSchema, answer).length,
            cursor: undefined,
          };
        },
      },
      REST: {
        async list(cursor, queued = false) {
          const query = new URLSearchParams({ addon_id: addonId, limit: '200' });
          if (cursor !== undefined) query.set('cursor', cursor);
          if (queued) query.set('state', 'QUEUED');
          const { status, body, text } = await get(server, `${jobsPath}?${query}`);
          expect(status, text.slice(0, 500)).to.equal(200);
          const ids = body.jobs.map(({ job_id }: { job_id: string }) => job_id);
          return { ids, bytes: Buffer.byteLength(text), cursor: body.next_cursor ?? undefined };
        },
        async claim() {
          const wanted = { worker_id: 'w', addon_id: addonId, limit: jobCount };
          const { status, body, text } = await post(server, `${jobsPath}/claim`, wanted);
          if (status === 204) return { ids: [], bytes: 0, cursor: undefined };
          expect(status, text.slice(0, 500)).to.equal(200);
          const claimed: { job_id: string }[] = body.jobs ?? [body.job];
          // The answer contains the first job twice: in the contract's field and in the list.
          const bytes = Buffer.byteLength(text) - Buffer.byteLength(JSON.stringify(body.job));
          return { ids: claimed.map(({ job_id }) => job_id), bytes, cursor: undefined };
        },
      },
    };

    async function listAll(list: (cursor?: string, queued?: boolean) => Promise<Part>, queued?: boolean) {
      const ids: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await list(cursor, queued);
        expect(page.bytes, 'bytes of a page').to.be.below(answerBytesMax);
        expect(page.ids, 'jobs of a page').not.to.have.length(0);
        ids.push(...page.ids);
        cursor = page.cursor;
      } while (cursor !== undefined);
      return ids;
    }

    for (const [name, { list }] of Object.entries(faces)) {
      it(`lists every job once over ${name} in pages of less than 4 MiB (C18)`, async () => {
        const ids = await listAll(list);
        expect(ids).to.deep.equal([...submitted].sort().reverse());
      });
    }

    it('claims every job once in answers of less than 4 MiB; the rest stay queued (C18)', async () => {
      const claimed: string[] = [];
      const taken = ({ ids, bytes }: Part, who: string) => {
        expect(bytes, `bytes that ${who} answers`).to.be.below(answerBytesMax);
        claimed.push(...ids);
        return ids.length;
      };
      const { gRPC, REST } = faces as Record<'gRPC' | 'REST', (typeof faces)[string]>;
      const first = taken(await gRPC.claim(), 'gRPC');
      expect(first).to.be.within(1, 3);
      const queued = await listAll(gRPC.list, true);
      expect([...queued, ...claimed].sort()).to.deep.equal([...submitted].sort());
      const second = taken(await REST.claim(), 'REST');
      expect(second).to.be.within(1, 3);
      // Sent together, so that both calls share a statement.
      const [a, b] = await Promise.all([gRPC.claim(), gRPC.claim()]);
      expect(taken(a, 'the first of two') + taken(b, 'the second of two')).to.be.above(0);
      while (taken(await gRPC.claim(), 'gRPC') > 0);
      expect([...claimed].sort()).to.deep.equal([...submitted].sort());
      expect((await REST.claim()).ids).to.deep.equal([]);
    });
  });
});
