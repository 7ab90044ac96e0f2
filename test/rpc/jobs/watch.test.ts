import { Code } from '@connectrpc/connect';
import { expect } from 'chai';
import { FinalStatus, JobState, type WatchJobResponse } from '../../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { cancel, claim, post, retry, status, submit } from '../../support/jobs-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { type Connection, expectRpcError, failure, wires } from '../../support/wires.ts';

/** Reads a stream as messages arrive, and returns those received so far. */
class Follower {
  readonly news: WatchJobResponse[] = [];
  readonly over: Promise<void>;

  constructor(stream: AsyncIterable<WatchJobResponse>) {
    this.over = (async () => {
      for await (const message of stream) this.news.push(message);
    })();
    // A test that fails for another reason does not await this promise.
    this.over.catch(() => {});
  }

  get types(): string[] {
    return this.news.flatMap(({ events }) => events.map(({ type }) => type));
  }

  async hears(type: string): Promise<void> {
    await eventually(
      `the stream tells of ${type}`,
      async () => this.types.includes(type) || undefined,
      5_000,
    );
  }
}

onEveryEngine((engine) => {
  describe('WatchJob', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    for (const [wire, connect] of Object.entries(wires)) {
      describe(`over ${wire}`, () => {
        let connection: Connection;
        before(() => {
          connection = connect(server);
        });
        after(() => connection.close());

        it('sends every change, and ends after the terminal one', async () => {
          const { job_id: jobId, addon_id } = await submit(server, {});
          const follower = new Follower(connection.jobs.watchJob({ jobId }));
          await follower.hears('JOB_SUBMITTED');
          expect(follower.news[0]?.job).to.include({ jobId, state: JobState.QUEUED });
          await claim(server, addon_id);
          await follower.hears('JOB_CLAIMED');
          expect(follower.news.at(-1)?.job).to.include({ state: JobState.CLAIMED, claimedBy: 'worker-1' });
          await status(server, jobId, { state: 'PREPARING' });
          await follower.hears('JOB_PREPARING');
          await cancel(server, jobId);
          await follower.over;
          expect(follower.types).to.deep.equal([
            'JOB_SUBMITTED',
            'JOB_CLAIMED',
            'JOB_PREPARING',
            'JOB_CANCELED',
          ]);
          const last = follower.news.pop();
          expect(last?.job?.state).to.equal(JobState.CANCELED);
          expect(last?.result).to.include({ jobId, status: FinalStatus.CANCELED });
          for (const { result } of follower.news) expect(result).to.equal(undefined);
        });

        it('sends all changes of an ended job at once', async () => {
          const { job_id: jobId } = await submit(server, {});
          for (let n = 0; n < 3; n++) {
            await cancel(server, jobId);
            if (n < 2) await retry(server, jobId);
          }
          const follower = new Follower(connection.jobs.watchJob({ jobId: jobId.toUpperCase() }));
          await follower.over;
          expect(follower.news).to.have.length(1);
          expect(follower.types).to.have.length(6);
          const after = follower.news[0]?.events.at(-2)?.eventId;
          const again = new Follower(connection.jobs.watchJob({ jobId, afterEventId: after }));
          await again.over;
          expect(again.types).to.deep.equal(['JOB_CANCELED']);
        });

        it('refuses an invalid event cursor', async () => {
          const { job_id: jobId } = await submit(server, {});
          const follower = new Follower(connection.jobs.watchJob({ jobId, afterEventId: -1n }));
          const metadata = expectRpcError(
            await failure(follower.over),
            Code.InvalidArgument,
            'invalid_request',
          );
          expect(metadata.field).to.equal('after_event_id');
        });

        it('ends when the client cancels, or at its deadline', async () => {
          const { job_id: jobId } = await submit(server, {});
          const enough = new AbortController();
          const follower = new Follower(connection.jobs.watchJob({ jobId }, { signal: enough.signal }));
          await follower.hears('JOB_SUBMITTED');
          enough.abort();
          expect(Code[(await failure(follower.over)).code]).to.equal(Code[Code.Canceled]);
          const late = new Follower(connection.jobs.watchJob({ jobId }, { timeoutMs: 300 }));
          expect(Code[(await failure(late.over)).code]).to.equal(Code[Code.DeadlineExceeded]);
          expect(server.complaints.splice(0)).to.deep.equal([]);
        });
      });
    }

    it('sends changes that the server makes itself', async () => {
      await using hasty = await startTestServer(engine, { settings: { claimTtlS: 1, maxClaims: 1 } });
      const connection = wires['gRPC, with the client of grpc-js']?.(hasty) as Connection;
      try {
        const { job_id: jobId, addon_id } = await submit(hasty, {});
        const follower = new Follower(connection.jobs.watchJob({ jobId }));
        await claim(hasty, addon_id);
        await follower.over;
        expect(follower.types.slice(2)).to.deep.equal(['CLAIM_EXPIRED', 'JOB_FAILED']);
        expect(follower.news.at(-1)?.result?.status).to.equal(FinalStatus.FAILED);
      } finally {
        connection.close();
      }
    });

    it('ends with UNAVAILABLE when the server stops', async () => {
      const stopping = await startTestServer(engine);
      const open = Object.entries(wires).map(([wire, connect]) => ({ wire, connection: connect(stopping) }));
      const { job_id: jobId } = await submit(stopping, {});
      const followers = open.map(({ wire, connection }) => ({
        wire,
        follower: new Follower(connection.jobs.watchJob({ jobId })),
      }));
      for (const { follower } of followers) await follower.hears('JOB_SUBMITTED');
      const since = performance.now();
      const stopped = stopping.stop();
      const codes: Record<string, string> = {};
      for (const { wire, follower } of followers)
        codes[wire] = Code[(await failure(follower.over)).code] ?? '';
      for (const { connection } of open) connection.close();
      await stopped;
      expect(performance.now() - since).to.be.below(4_000);
      expect(codes).to.deep.equal(Object.fromEntries(open.map(({ wire }) => [wire, 'Unavailable'])));
    });

    if (engine.name !== 'postgresql') return;

    it('sends changes that are made through another server on the same database', async () => {
      await using other = await startTestServer(engine, { shared: server.store });
      for (const wire of ['gRPC, with the client of grpc-js', 'Connect in JSON']) {
        const connection = wires[wire]?.(server) as Connection;
        const { job_id: jobId } = await submit(other, {});
        const follower = new Follower(connection.jobs.watchJob({ jobId }));
        await follower.hears('JOB_SUBMITTED');
        await cancel(other, jobId);
        await follower.over;
        expect(follower.news.at(-1)?.result?.status).to.equal(FinalStatus.CANCELED);
        connection.close();
      }
      const { body } = await post(other, '/api/scheduler/jobs/claim', { worker_id: 'w', addon_id: 'nobody' });
      expect(body).to.equal(undefined);
    });
  });
});
