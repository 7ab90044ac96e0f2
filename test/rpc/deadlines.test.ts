import { type CallOptions, Code, ConnectError } from '@connectrpc/connect';
import { errorFromJsonBytes } from '@connectrpc/connect/protocol-connect';
import { expect } from 'chai';
import pg from 'pg';
import { JobState } from '../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../support/engines.ts';
import { claimedJob, submit } from '../support/jobs-api.ts';
import { eventually, startTestServer, type TestServer } from '../support/server.ts';
import {
  type Connection,
  expectRpcError,
  failure,
  type JobsClient,
  pathOf,
  wires,
} from '../support/wires.ts';

onEveryEngine((engine) => {
  // A lock that a test holds needs a second connection, and the embedded database has only one.
  if (engine.name !== 'postgresql') return;

  describe('deadlines of calls', () => {
    let server: TestServer;
    /** Holds locks. */
    let other: pg.Client;
    /** Observes: within a transaction PostgreSQL returns the same snapshot of its activity every time. */
    let onlooker: pg.Client;
    before(async () => {
      server = await startTestServer(engine);
      const connectionString = server.store.options.url;
      [other, onlooker] = [new pg.Client({ connectionString }), new pg.Client({ connectionString })];
      await Promise.all([other.connect(), onlooker.connect()]);
    });
    after(async () => {
      await Promise.all([other.end(), onlooker.end()]);
      await server.stop();
    });

    /** The callers' statements that wait for a lock. The reaper, which reads due rows, has no deadline. */
    const running = async (): Promise<string[]> => {
      const { rows } = await onlooker.query<{ query: string }>(
        `select query from pg_stat_activity where application_name = 'leasehold' and state = 'active'
          and datname = current_database() and wait_event_type = 'Lock'
          and query not like '%check_at <= (select clock_timestamp())%'`,
      );
      return rows.map(({ query }) => query);
    };
    const someRuns = async () => ((await running()).length > 0 ? true : undefined);
    const noneRuns = async () => ((await running()).length === 0 ? true : undefined);

    for (const [wire, connect] of Object.entries(wires)) {
      it(`ends a call over ${wire} and its query at the deadline behind a row lock`, async () => {
        const { job_id: jobId } = await claimedJob(server);
        const connection: Connection = connect(server);
        await other.query('begin');
        try {
          await other.query('select from live_jobs where job_id = $1 for update', [jobId]);
          const since = performance.now();
          const call = failure(
            connection.jobs.updateJobStatus({ jobId, state: JobState.PREPARING }, { timeoutMs: 500 }),
          );
          await eventually('the query waits for the lock', someRuns, 5_000);
          const error = await call;
          expect(Code[error.code], error.rawMessage).to.equal(Code[Code.DeadlineExceeded]);
          expect(performance.now() - since).to.be.within(400, 6_000);
          await eventually('the query is gone, though the lock is held', noneRuns, 6_000);
        } finally {
          await other.query('rollback');
          connection.close();
        }
        const unchanged = await fetch(`${server.http}/api/scheduler/jobs/${jobId}`);
        expect(((await unchanged.json()) as { job: { state: string } }).job.state).to.equal('CLAIMED');
        expect(server.complaints.splice(0)).to.deep.equal([]);
      });
    }

    const calls: Record<string, (jobs: JobsClient, jobId: string) => (how: CallOptions) => Promise<unknown>> =
      {
        SubmitJob: (jobs) => (how) => jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 }, how),
        SubmitJobs: (jobs) => (how) =>
          jobs.submitJobs({ jobs: [{ addonId: 'a', jobType: 't', costUnits: 1 }] }, how),
        ClaimJobs: (jobs) => (how) => jobs.claimJobs({ workerId: 'w' }, how),
        'ClaimJobs with a request_id': (jobs) => (how) =>
          jobs.claimJobs({ workerId: 'w', requestId: 'r' }, how),
        GetJob: (jobs, jobId) => (how) => jobs.getJob({ jobId }, how),
        ListJobs: (jobs) => (how) => jobs.listJobs({}, how),
        CancelJob: (jobs, jobId) => (how) => jobs.cancelJob({ jobId }, how),
        RetryJob: (jobs, jobId) => (how) => jobs.retryJob({ jobId }, how),
        ListJobEvents: (jobs, jobId) => (how) => jobs.listJobEvents({ jobId }, how),
      };
    for (const [name, call] of Object.entries(calls)) {
      it(`ends ${name} and its query at the deadline while the jobs are locked`, async () => {
        const { job_id: jobId } = await submit(server, {});
        const grpc = wires['gRPC, with the client of grpc-js']?.(server) as Connection;
        await other.query('begin');
        try {
          await other.query('lock table jobs in access exclusive mode');
          const late = failure(call(grpc.jobs, jobId)({ timeoutMs: 500 }));
          await eventually('the query waits for the lock', someRuns, 5_000);
          const error = await late;
          expect(Code[error.code], error.rawMessage).to.equal(Code[Code.DeadlineExceeded]);
          await eventually('the query is gone, though the lock is held', noneRuns, 6_000);
        } finally {
          await other.query('rollback');
          grpc.close();
        }
        expect(server.complaints.splice(0)).to.deep.equal([]);
      });
    }

    it('answers a passed deadline from the server, in the shape of every error', async () => {
      const { job_id: jobId } = await claimedJob(server);
      await other.query('begin');
      try {
        await other.query('select from live_jobs where job_id = $1 for update', [jobId]);
        const response = await fetch(`${server.http}${pathOf('CancelJob')}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'connect-timeout-ms': '300' },
          body: JSON.stringify({ jobId }),
        });
        expect(response.status).to.equal(504);
        const bytes = new Uint8Array(await response.arrayBuffer());
        const error = errorFromJsonBytes(
          bytes,
          undefined,
          new ConnectError('not an error in JSON', Code.Unknown),
        );
        expectRpcError(error, Code.DeadlineExceeded, 'deadline_exceeded');
      } finally {
        await other.query('rollback');
      }
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    it('cancels the query of a call that its caller abandons', async () => {
      const { job_id } = await submit(server, {});
      await other.query('begin');
      try {
        await other.query('select from live_jobs where job_id = $1 for update', [job_id]);
        const gone = new AbortController();
        const call = fetch(`${server.http}/api/scheduler/jobs/${job_id}/cancel`, {
          method: 'POST',
          signal: gone.signal,
        }).catch((error: Error) => error.name);
        await eventually('the query waits for the lock', someRuns, 5_000);
        gone.abort();
        expect(await call).to.equal('AbortError');
        await eventually('the query is gone, though the lock is held', noneRuns, 6_000);
      } finally {
        await other.query('rollback');
      }
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    it('keeps other calls waiting when one of them reaches its deadline', async () => {
      const { job_id: jobId } = await claimedJob(server);
      const grpc = wires['gRPC, with the client of grpc-js']?.(server) as Connection;
      await other.query('begin');
      try {
        await other.query('select from live_jobs where job_id = $1 for update', [jobId]);
        const patient = grpc.jobs.updateJobStatus({ jobId, state: JobState.PREPARING });
        await eventually('the query waits for the lock', someRuns, 5_000);
        const hasty = failure(grpc.jobs.cancelJob({ jobId }, { timeoutMs: 300 }));
        expectRpcErrorOrClient(await hasty);
        await other.query('rollback');
        expect((await patient).job?.state).to.equal(JobState.PREPARING);
      } finally {
        await other.query('rollback');
        grpc.close();
      }
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
  });
});

/**
 * The client's own deadline may pass before the server's answer arrives; the server's answer has our details.
 */
function expectRpcErrorOrClient(error: Awaited<ReturnType<typeof failure>>): void {
  if (error.details.length > 0) expectRpcError(error, Code.DeadlineExceeded, 'deadline_exceeded');
  else expect(Code[error.code]).to.equal(Code[Code.DeadlineExceeded]);
}
