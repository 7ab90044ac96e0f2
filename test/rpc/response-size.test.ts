/**
 * Answers above the default size limit of gRPC clients are split; every item is sent once, and none is lost.
 */
import { type DescMessage, type MessageShape, toBinary } from '@bufbuild/protobuf';
import { type Client, createClient } from '@connectrpc/connect';
import { credentials, Client as GrpcClient } from '@grpc/grpc-js';
import { expect } from 'chai';
import { ExplainResponseSchema } from '../../gen/leasehold/v1/explain_pb.js';
import {
  AcquireFileLeasesResponseSchema,
  FileLeasesService,
  ListBlockersResponseSchema,
  ListFileLeasesResponseSchema,
} from '../../gen/leasehold/v1/files_pb.js';
import {
  FinalStatus,
  JobState,
  JobsService,
  ListJobEventsResponseSchema,
  ListJobsResponseSchema,
  WatchJobResponseSchema,
} from '../../gen/leasehold/v1/jobs_pb.js';
import { LeasesService, ListLeasesResponseSchema } from '../../gen/leasehold/v1/leases_pb.js';
import {
  GetQueueResponseSchema,
  ListWorkersResponseSchema,
  StatsService,
} from '../../gen/leasehold/v1/stats_pb.js';
import { limits } from '../../src/domain/limits.ts';
import { onEveryEngine } from '../support/engines.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { grpcJsTransport } from '../support/wires.ts';

const attempts = 6;
const filesPerRequest = 250;
const fileRequests = 4;
const groupCount = 8;
const workerCount = 120;

const expectSmall = <Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): void => {
  expect(toBinary(schema, message).length, schema.name).to.be.at.most(limits.answerBytes);
};

/** Follows the cursors and returns the items of all pages, of which there must be several. */
async function allPages<Item>(
  read: (cursor: string | undefined) => Promise<{ items: Item[]; nextCursor?: string }>,
): Promise<Item[]> {
  const all: Item[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const page = await read(cursor);
    expect(page.items, `page ${++pages}`).not.to.have.length(0);
    all.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  expect(pages, 'pages').to.be.above(1);
  return all;
}

onEveryEngine((engine) => {
  describe('answers to gRPC clients with the default limit of 4 MiB', () => {
    let server: TestServer;
    let client: GrpcClient;
    let jobs: Client<typeof JobsService>;
    let leases: Client<typeof LeasesService>;
    let files: Client<typeof FileLeasesService>;
    let stats: Client<typeof StatsService>;
    before(async () => {
      server = await startTestServer(engine);
      client = new GrpcClient(server.grpc, credentials.createInsecure());
      const transport = grpcJsTransport(client);
      jobs = createClient(JobsService, transport);
      leases = createClient(LeasesService, transport);
      files = createClient(FileLeasesService, transport);
      stats = createClient(StatsService, transport);
    });
    after(async () => {
      client.close();
      await server.stop();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));

    describe('about a job whose attempts each left 900 kB of details', () => {
      let jobId: string;
      before(async function () {
        this.timeout(60_000);
        const { job } = await jobs.submitJob({ addonId: 'big', jobType: 't', costUnits: 1 });
        jobId = job?.jobId ?? '';
        for (let i = 0; i < attempts; i++) {
          if (i > 0) await jobs.retryJob({ jobId });
          const { outcome } = await leases.acquireLease({ workerId: 'w', addonId: 'big' });
          if (outcome.case !== 'granted') return expect.fail(outcome.case);
          const { lease } = outcome.value;
          await leases.releaseLease({
            leaseId: lease?.leaseId,
            workerId: 'w',
            status: FinalStatus.FAILED,
            error: { message: 'no', stack: 'x'.repeat(900_000), retryable: false },
          });
        }
      });

      it('splits ListLeases into pages below 4 MiB', async () => {
        const found = await allPages(async (cursor) => {
          const answer = await leases.listLeases({ jobId, limit: 200, cursor });
          expectSmall(ListLeasesResponseSchema, answer);
          return { items: answer.leases, nextCursor: answer.nextCursor };
        });
        expect(found.map(({ attempt }) => attempt)).to.deep.equal([6, 5, 4, 3, 2, 1]);
      });

      it('splits ListJobEvents into pages and WatchJob into messages, the result in the last', async () => {
        const events = await allPages(async (cursor) => {
          const answer = await jobs.listJobEvents({ jobId, limit: 200, cursor });
          expectSmall(ListJobEventsResponseSchema, answer);
          return { items: answer.events, nextCursor: answer.nextCursor };
        });
        expect(events.filter(({ type }) => type === 'JOB_RETRIED')).to.have.length(attempts - 1);
        const ids: bigint[] = [];
        const results: boolean[] = [];
        for await (const message of jobs.watchJob({ jobId })) {
          expectSmall(WatchJobResponseSchema, message);
          expect(message.job?.state).to.equal(JobState.FAILED);
          ids.push(...message.events.map(({ eventId }) => eventId));
          results.push(message.result !== undefined);
        }
        expect(ids).to.deep.equal(events.map(({ eventId }) => eventId));
        expect(results.length).to.be.above(1);
        expect(results).to.deep.equal(results.map((_, i) => i === results.length - 1));
      });

      it('explains the newest attempts, and counts those that it omits', async () => {
        const answer = await stats.explain({ subject: { case: 'jobId', value: jobId } });
        expectSmall(ExplainResponseSchema, answer);
        const told = answer.explanation?.attempts.map(({ lease }) => lease?.attempt) ?? [];
        expect(told).to.have.length.within(1, attempts - 1);
        expect(told).to.deep.equal([1, 2, 3, 4, 5, 6].slice(-told.length));
        expect(answer.explanation?.attemptsLeftOut).to.equal(attempts - told.length);
      });
    });

    it('splits ListJobs into pages if payloads are larger as a Struct than as JSON', async () => {
      const payload = { list: Array.from({ length: 100_000 }, () => 1) };
      for (let i = 0; i < 5; i++)
        await jobs.submitJob({ addonId: 'numbers', jobType: 't', costUnits: 1, payload });
      const found = await allPages(async (cursor) => {
        const answer = await jobs.listJobs({ addonId: 'numbers', limit: 200, cursor });
        expectSmall(ListJobsResponseSchema, answer);
        return { items: answer.jobs, nextCursor: answer.nextCursor };
      });
      expect(new Set(found.map(({ jobId }) => jobId))).to.have.property('size', 5);
      expect(found).to.have.length(5);
    });

    it('splits ListFileLeases and ListBlockers into pages below 4 MiB', async function () {
      this.timeout(60_000);
      const repository = 'long';
      const pathsOf = (request: number) =>
        Array.from(
          { length: filesPerRequest },
          (_, i) => `${request}-${i}/${'d'.repeat(limits.pathBytes - 20)}`,
        );
      for (let i = 0; i < fileRequests; i++) {
        const { outcome } = await files.acquireFileLeases({
          ownerId: 'holder',
          repository,
          paths: pathsOf(i),
        });
        expect(outcome.case).to.equal('granted');
      }
      const held = await allPages(async (cursor) => {
        const answer = await files.listFileLeases({ repository, limit: 1_000, cursor });
        expectSmall(ListFileLeasesResponseSchema, answer);
        return { items: answer.leases, nextCursor: answer.nextCursor };
      });
      expect(new Set(held.map(({ path }) => path))).to.have.property('size', filesPerRequest * fileRequests);
      expect(held).to.have.length(filesPerRequest * fileRequests);
      const contentionIds: string[] = [];
      for (let i = 0; i < fileRequests; i++) {
        const { outcome } = await files.acquireFileLeases({
          ownerId: `waiter-${i}`,
          repository,
          paths: pathsOf(i),
        });
        if (outcome.case !== 'contended') return expect.fail(outcome.case);
        contentionIds.push(outcome.value.contentionId);
      }
      const blocked = await allPages(async (cursor) => {
        const answer = await files.listBlockers({ repository, limit: 1_000, cursor });
        expectSmall(ListBlockersResponseSchema, answer);
        return { items: answer.blockers, nextCursor: answer.nextCursor };
      });
      const found = blocked.map(({ blocked: { value } }) => value?.contentionId);
      expect(found).to.deep.equal(contentionIds.toReversed());
    });

    it('answers AcquireFileLeases for 5,000 paths of 200 bytes below 4 MiB, granted or contended', async function () {
      this.timeout(60_000);
      const paths = Array.from({ length: 5_000 }, (_, i) => String(i).padEnd(200, 'p'));
      const owner = {
        agent: 'claude-code',
        host: 'a-host.example',
        pid: 123_456,
        branch: 'feature/some-branch',
      };
      for (const [ownerId, outcome] of [
        ['f81d4fae-7dec-41d0-a765-00a0c91e6bf6:one', 'granted'],
        ['f81d4fae-7dec-41d0-a765-00a0c91e6bf6:two', 'contended'],
      ] as const) {
        const answer = await files.acquireFileLeases({
          ownerId,
          repository: '/home/somebody/some-repository',
          paths,
          owner,
        });
        expect(answer.outcome.case).to.equal(outcome);
        expectSmall(AcquireFileLeasesResponseSchema, answer);
      }
    });

    it('splits GetQueue into pages if groups require thousands of capabilities', async function () {
      this.timeout(60_000);
      for (let group = 0; group < groupCount; group++) {
        const names = Array.from({ length: 5_000 }, (_, i) => `g${group}-${i}-${'c'.repeat(110)}_required`);
        const constraints = Object.fromEntries(names.map((name) => [name, true]));
        await jobs.submitJob({ addonId: 'groups', jobType: `g${group}`, costUnits: 1, constraints });
      }
      const groups = await allPages(async (cursor) => {
        const answer = await stats.getQueue({ limit: 50, cursor });
        expectSmall(GetQueueResponseSchema, answer);
        return { items: answer.groups, nextCursor: answer.nextCursor };
      });
      const found = groups.filter(({ addonId }) => addonId === 'groups').map(({ jobType }) => jobType);
      expect(found).to.deep.equal(Array.from({ length: groupCount }, (_, i) => `g${i}`));
    });

    it('splits ListWorkers into pages if workers ask for many kinds of jobs', async () => {
      const ask = {
        streams: null,
        jobTypes: ['j'.repeat(limits.workerAskChars)],
        available: [],
        refused: [],
        addonId: null,
        maxCostUnits: null,
        jobs: 1,
        isCut: true,
      };
      const asks = Array.from({ length: limits.workerAsks + limits.workerCalledAsks }, () => ask);
      await server.database.query(
        `insert into workers (worker_id, server_id, server_host, server_pid, peer, work_streams, heartbeat_streams,
          waiting_calls, since, last_heard_at, asks, asks_cut, expires_at)
        select 'worker-' || lpad(n::text, 4, '0'), md5(server::text)::uuid, 'h', 1, 'p', 1, 0, 0, now(), now(), $2::jsonb, true,
          now() + interval '1 hour'
        from generate_series(1, $1::int) as n, generate_series(1, 3) as server`,
        [workerCount, JSON.stringify(asks)],
      );
      const workers = await allPages(async (cursor) => {
        const answer = await stats.listWorkers({ limit: 200, cursor });
        expectSmall(ListWorkersResponseSchema, answer);
        return { items: answer.workers, nextCursor: answer.nextCursor };
      });
      const found = workers.map(({ workerId }) => workerId).filter((id) => id.startsWith('worker-'));
      expect(found).to.deep.equal(
        Array.from({ length: workerCount }, (_, i) => `worker-${String(i + 1).padStart(4, '0')}`),
      );
    });
  });
});
