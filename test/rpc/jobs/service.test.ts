import { Code } from '@connectrpc/connect';
import { expect } from 'chai';
import { FinalStatus, JobState, OnDuplicate, Priority } from '../../../gen/leasehold/v1/jobs_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { expectUuid, newAddon } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { type Connection, expectRpcError, failure, type JobsClient, wires } from '../../support/wires.ts';

const nowhere = '00000000-0000-4000-8000-000000000000';

onEveryEngine((engine) => {
  let server: TestServer;
  before(async () => {
    server = await startTestServer(engine);
  });
  after(() => server.stop());

  for (const [wire, connect] of Object.entries(wires)) {
    describe(`JobsService over ${wire}`, () => {
      let connection: Connection;
      let jobs: JobsClient;
      before(() => {
        connection = connect(server);
        jobs = connection.jobs;
      });
      afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
      after(() => connection.close());

      const submit = async (fields: object = {}) => {
        const { job } = await jobs.submitJob({ addonId: newAddon(), jobType: 't', costUnits: 1, ...fields });
        if (!job) throw new Error('no job in the answer');
        return job;
      };
      const claim = async (fields: object = {}) => {
        const { addonId } = await submit(fields);
        const { jobs: claimed } = await jobs.claimJobs({ addonId, workerId: 'worker-1' });
        const [job] = claimed;
        if (!job) throw new Error('nothing was claimed');
        return job;
      };

      it('submits a job and reads it', async () => {
        const { job, existing } = await jobs.submitJob({
          addonId: 'visuals',
          jobType: 'load30',
          priority: Priority.HIGH,
          costUnits: 30,
          constraints: { cpu_heavy: true },
          payload: { model: 'sdxl', deep: [{ n: null, f: 0.1, t: 'ü☃' }] },
          tags: ['a', 'b'],
          unique: true,
          runAt: { seconds: 32_503_680_000n, nanos: 500_000_000 },
        });
        expect(existing).to.equal(false);
        expect(job).to.include({
          addonId: 'visuals',
          jobType: 'load30',
          priority: Priority.HIGH,
          costUnits: 30,
        });
        expect(job).to.include({ state: JobState.QUEUED, attempts: 0, maxAttempts: 1, retryBackoffS: 2 });
        expect(job).to.include({ unique: true, cancelRequested: false });
        expect(job?.constraints).to.deep.equal({ cpu_heavy: true });
        expect(job?.payload).to.deep.equal({ model: 'sdxl', deep: [{ n: null, f: 0.1, t: 'ü☃' }] });
        expect(job?.tags).to.deep.equal(['a', 'b']);
        expect(job?.runAt).to.deep.include({ seconds: 32_503_680_000n, nanos: 500_000_000 });
        expect(job?.claimedBy).to.equal(undefined);
        expectUuid(job?.jobId);
        const read = await jobs.getJob({ jobId: job?.jobId ?? '' });
        expect(read.job).to.deep.equal(job);
        expect(read.result).to.equal(undefined);
      });

      it('submits many jobs, each with its own outcome, in their order', async () => {
        const addonId = newAddon();
        const good = { addonId, jobType: 't', costUnits: 1 };
        const first = await submit({ ...good, clientRequestId: 'taken' });
        const { outcomes } = await jobs.submitJobs({
          jobs: [
            good,
            { ...good, costUnits: 0 },
            { ...good, clientRequestId: 'taken' },
            { ...good, clientRequestId: 'taken', onDuplicate: OnDuplicate.RETURN_EXISTING },
            { ...good, payload: { text: 'a\0b' } },
            { ...good, payload: { text: 'x'.repeat(1024 * 1024) } },
            { ...good, clientRequestId: 'fresh' },
            { ...good, clientRequestId: 'fresh' },
          ],
        });
        const told = outcomes.map(({ outcome: { case: kind, value } }) =>
          kind === 'error' ? [value.code, value.field, value.jobId] : [kind, value?.existing],
        );
        const fresh = outcomes[6]?.outcome;
        expect(told).to.deep.equal([
          ['submitted', false],
          ['invalid_request', 'jobs[1].cost_units', undefined],
          ['duplicate_request', told[2]?.[1], first.jobId],
          ['submitted', true],
          ['invalid_request', 'jobs[4].payload.text', undefined],
          ['payload_too_large', 'jobs[5].payload', undefined],
          ['submitted', false],
          ['duplicate_request', told[7]?.[1], fresh?.case === 'submitted' ? fresh.value.jobId : 'none'],
        ]);
        const existing = outcomes[3]?.outcome;
        expect(existing?.case === 'submitted' && existing.value.jobId).to.equal(first.jobId);
        expect((await jobs.listJobs({ addonId })).jobs).to.have.length(3);
        expect((await jobs.submitJobs({ jobs: [] })).outcomes).to.deep.equal([]);
      });

      it('claims jobs in their order, and returns none if no job matches', async () => {
        const addonId = newAddon();
        for (const costUnits of [1, 2, 3]) await submit({ addonId, costUnits });
        const constraintsCapabilities = { gpu_available: false };
        const two = await jobs.claimJobs({ addonId, workerId: 'w', limit: 2, constraintsCapabilities });
        expect(two.jobs.map(({ costUnits }) => costUnits)).to.deep.equal([1, 2]);
        for (const job of two.jobs) {
          expect(job).to.include({ state: JobState.CLAIMED, claimedBy: 'w' });
          expect(job.claimExpiresAt?.seconds).to.be.a('bigint');
        }
        expect((await jobs.claimJobs({ addonId, workerId: 'w', maxCostUnits: 2 })).jobs).to.deep.equal([]);
      });

      it('lists jobs in pages', async () => {
        const addonId = newAddon();
        for (let n = 0; n < 3; n++) await submit({ addonId, costUnits: n + 1 });
        const first = await jobs.listJobs({ addonId, limit: 2, states: [JobState.QUEUED, JobState.RUNNING] });
        expect(first.jobs.map(({ costUnits }) => costUnits)).to.deep.equal([3, 2]);
        const second = await jobs.listJobs({ addonId, limit: 2, cursor: first.nextCursor });
        expect(second.jobs.map(({ costUnits }) => costUnits)).to.deep.equal([1]);
        expect(second.nextCursor).to.equal(undefined);
        expect((await jobs.listJobs({ addonId, states: [JobState.DONE] })).jobs).to.deep.equal([]);
      });

      it('accepts status updates of the claiming worker', async () => {
        const { jobId } = await claim();
        const { job } = await jobs.updateJobStatus({
          jobId,
          state: JobState.PREPARING,
          note: 'warming',
          progress: 0.15,
          workerId: 'worker-1',
        });
        expect(job).to.include({ state: JobState.PREPARING, note: 'warming', progress: 0.15 });
      });

      it('cancels and retries a job, and lists its events', async () => {
        const { jobId, addonId } = await submit();
        const canceled = await jobs.cancelJob({ jobId, reason: 'why', requestedBy: 'operator' });
        expect(canceled.job?.state).to.equal(JobState.CANCELED);
        const { result } = await jobs.getJob({ jobId });
        expect(result).to.include({ jobId, status: FinalStatus.CANCELED, attempts: 0 });
        expect(result?.error).to.equal(undefined);
        expect((await jobs.retryJob({ jobId, requestedBy: 'admin' })).job?.state).to.equal(JobState.QUEUED);
        const first = await jobs.listJobEvents({ jobId, limit: 2 });
        const rest = await jobs.listJobEvents({ jobId, cursor: first.nextCursor });
        expect(rest.nextCursor).to.equal(undefined);
        const told = [...first.events, ...rest.events].map(({ type, data }) => [type, data?.by, data?.to]);
        expect(told).to.deep.equal([
          ['JOB_SUBMITTED', addonId, 'QUEUED'],
          ['JOB_CANCELED', 'operator', 'CANCELED'],
          ['JOB_RETRIED', 'admin', 'QUEUED'],
        ]);
      });

      it('watches a job to its end', async () => {
        const { jobId } = await submit();
        const states: JobState[] = [];
        const types: string[] = [];
        for await (const { job, events, result } of jobs.watchJob({ jobId })) {
          states.push(job?.state ?? JobState.UNSPECIFIED);
          types.push(...events.map(({ type }) => type));
          if (job?.state === JobState.QUEUED) await jobs.cancelJob({ jobId });
          expect(result?.status).to.equal(
            job?.state === JobState.CANCELED ? FinalStatus.CANCELED : undefined,
          );
        }
        expect(states).to.deep.equal([JobState.QUEUED, JobState.CANCELED]);
        expect(types).to.deep.equal(['JOB_SUBMITTED', 'JOB_CANCELED']);
      });

      it('names the invalid field of a request', async () => {
        const error = await failure(jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 0 }));
        const metadata = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
        expect(metadata).to.deep.equal({ field: 'cost_units' });
        expect(error.rawMessage).to.include('cost_units');
      });

      it('answers not_found for an unknown job', async () => {
        for (const jobId of [nowhere, 'nonsense', '']) {
          const calls: (() => Promise<unknown>)[] = [
            () => jobs.getJob({ jobId }),
            () => jobs.cancelJob({ jobId }),
            () => jobs.retryJob({ jobId }),
            () => jobs.listJobEvents({ jobId }),
            () => jobs.updateJobStatus({ jobId, state: JobState.PREPARING }),
            async () => {
              for await (const news of jobs.watchJob({ jobId })) throw new Error(`told ${news.job?.jobId}`);
            },
          ];
          for (const call of calls) expectRpcError(await failure(call()), Code.NotFound, 'job_not_found');
        }
      });

      it('names the job of a duplicate, or returns it', async () => {
        const addonId = newAddon();
        const again = { addonId, jobType: 't', costUnits: 1, clientRequestId: 'key' };
        const first = await submit(again);
        const error = await failure(jobs.submitJob(again));
        const metadata = expectRpcError(error, Code.AlreadyExists, 'duplicate_request');
        expect(metadata).to.include({ job_id: first.jobId });
        const found = await jobs.submitJob({ ...again, onDuplicate: OnDuplicate.RETURN_EXISTING });
        expect(found.existing).to.equal(true);
        expect(found.job).to.deep.equal(first);
      });

      it('explains why a job cannot enter the requested state', async () => {
        const { jobId } = await claim();
        const done = await failure(jobs.updateJobStatus({ jobId, state: JobState.DONE }));
        expectRpcError(done, Code.FailedPrecondition, 'illegal_transition');
        const other = await failure(
          jobs.updateJobStatus({ jobId, state: JobState.PREPARING, workerId: 'w2' }),
        );
        expectRpcError(other, Code.PermissionDenied, 'worker_mismatch');
        expectRpcError(
          await failure(jobs.retryJob({ jobId })),
          Code.FailedPrecondition,
          'illegal_transition',
        );
      });

      it('refuses a job of more than 1 MiB', async () => {
        const payload = { text: 'x'.repeat(1024 * 1024) };
        const error = await failure(jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1, payload }));
        expect(expectRpcError(error, Code.ResourceExhausted, 'payload_too_large')).to.deep.equal({
          field: 'payload',
        });
      });
    });
  }
});
