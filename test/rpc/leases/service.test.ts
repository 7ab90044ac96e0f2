import { type DescEnum, fromJson, type JsonValue, toJson } from '@bufbuild/protobuf';
import { type Timestamp, ValueSchema } from '@bufbuild/protobuf/wkt';
import { type Client, Code, createClient } from '@connectrpc/connect';
import { expect } from 'chai';
import { FinalStatus, FinalStatusSchema, JobState } from '../../../gen/leasehold/v1/jobs_pb.js';
import { LeaseState, LeaseStateSchema, LeasesService } from '../../../gen/leasehold/v1/leases_pb.js';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { expectUuid, newAddon } from '../../support/jobs-api.ts';
import { nowhere, plenty } from '../../support/leases-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { type Connection, expectRpcError, failure, type JobsClient, wires } from '../../support/wires.ts';

const value = (json: JsonValue) => fromJson(ValueSchema, json);

const msOf = (time: Timestamp | undefined): number => Number(time?.seconds) * 1000 + (time?.nanos ?? 0) / 1e6;

onEveryEngine((engine) => {
  let server: TestServer;
  before(async () => {
    server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
  });
  after(() => server.stop());

  for (const wire of ['gRPC, with the client of grpc-js', 'Connect in JSON']) {
    describe(`LeasesService and StatsService over ${wire}`, () => {
      let connection: Connection;
      let jobs: JobsClient;
      let leases: Client<typeof LeasesService>;
      let stats: Client<typeof StatsService>;
      before(() => {
        connection = (wires[wire] as (typeof wires)[string])(server);
        jobs = connection.jobs;
        leases = createClient(LeasesService, connection.transport);
        stats = createClient(StatsService, connection.transport);
      });
      afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
      after(() => connection.close());

      const submit = async (fields: object = {}) => {
        const job = { addonId: newAddon(), jobType: 't', costUnits: 3, ...fields };
        return (await jobs.submitJob(job)).job ?? expect.fail('no job');
      };
      const claim = async (fields: object = {}) => {
        const { addonId } = await submit(fields);
        const [job] = (await jobs.claimJobs({ addonId, workerId: 'worker-1' })).jobs;
        return job ?? expect.fail('nothing was claimed');
      };
      const granted = ({
        outcome,
      }: Awaited<ReturnType<typeof leases.acquireLease | typeof leases.requestLease>>) => {
        if (outcome.case !== 'granted') return expect.fail(`denied: ${outcome.value?.reason}`);
        const { lease, job } = outcome.value;
        return lease && job ? { lease, job } : expect.fail('half a grant');
      };
      const requested = async (fields: object = {}) =>
        granted(await leases.requestLease({ jobId: (await claim(fields)).jobId }));
      const acquired = async (fields: object = {}) => {
        const { addonId } = await submit(fields);
        return granted(await leases.acquireLease({ workerId: 'worker-1', addonId }));
      };
      const owner = ({ leaseId }: { leaseId: string }) => ({ leaseId, workerId: 'worker-1' });

      it('leases jobs of streams, and accepts failures to be retried or final', async () => {
        const stream = `over ${wire} ${engine.name}`;
        const { jobId } = await submit({ stream, maxAttempts: 2, retryBackoffS: 0 });
        const none = await leases.acquireLease({ workerId: 'worker-1', streams: ['another'] });
        expect(none.outcome.case).to.equal('denied');
        const attempt = async () => {
          const { outcome } = await leases.acquireLease({
            workerId: 'worker-1',
            streams: ['another', stream],
          });
          return outcome.case === 'granted' ? outcome.value : expect.fail('denied');
        };
        const fail = (leaseId: string, token: string | undefined, retryable: boolean) =>
          leases.releaseLease({
            leaseId,
            workerId: 'worker-1',
            ...(token === undefined ? {} : { leaseToken: token }),
            status: FinalStatus.FAILED,
            error: { message: 'it broke', code: 'E_BROKEN', stack: 'at line 1', retryable },
          });
        const first = await attempt();
        expect([first.job?.jobId, first.job?.state]).to.deep.equal([jobId, JobState.RUNNING]);
        expect(first.streamMessage).to.include({ stream, messageId: `${jobId}:1` });
        const { leaseId = '', leaseToken } = first.lease ?? {};
        const stranger = await failure(fail(leaseId, nowhere, true));
        expectRpcError(stranger, Code.PermissionDenied, 'token_mismatch');
        const back = await fail(leaseId, leaseToken, true);
        expect([back.requeued, back.deadLettered, back.result]).to.deep.equal([true, false, undefined]);
        expect((await fail(leaseId, leaseToken, true)).requeued, 'sent again').to.equal(true);
        const second = await attempt();
        const over = await fail(second.lease?.leaseId ?? '', second.lease?.leaseToken, true);
        expect([over.requeued, over.deadLettered, over.job?.deadLettered]).to.deep.equal([false, true, true]);
        const { leases: attempts } = await leases.listLeases({ jobId });
        expect(
          attempts.map(({ attempt, error, requeued, deadLettered }) => [
            attempt,
            error,
            requeued,
            deadLettered,
          ]),
        ).to.deep.equal([
          [2, 'it broke', false, true],
          [1, 'it broke', true, false],
        ]);
        expect(attempts[0]?.errorDetail).to.include({ code: 'E_BROKEN', stack: 'at line 1' });
        expect(
          (await jobs.listJobs({ stream, deadLettered: true })).jobs.map((job) => job.jobId),
        ).to.deep.equal([jobId]);
        const again = await jobs.retryDeadLetters({ stream, errorCode: 'E_BROKEN' });
        expect(again.jobIds).to.deep.equal([jobId]);
        expect((await attempt()).lease?.attempt).to.equal(3);
        const streams = await jobs.listStreams({ stream });
        expect(streams.streams).to.have.length(1);
        expect(streams.streams[0]).to.include({ stream, queued: 0, delayed: 0, running: 1, deadLettered: 0 });
      });

      it('leases a claimed job', async () => {
        const { jobId, addonId } = await claim();
        const request = { jobId, addonId, workerId: 'worker-1', ttlSec: 30, requestId: newAddon() };
        const answer = await leases.requestLease(request);
        const { lease, job } = granted(answer);
        expectUuid(lease.leaseId);
        expect(lease).to.include({
          jobId,
          addonId,
          workerId: 'worker-1',
          costUnits: 3,
          ttlSec: 30,
          attempt: 1,
        });
        expect(lease).to.include({ state: LeaseState.ACTIVE, releaseStatus: FinalStatus.UNSPECIFIED });
        expect(lease.endedAt).to.equal(undefined);
        expect(msOf(lease.expiresAt) - msOf(lease.grantedAt)).to.equal(30_000);
        expect(lease.lastHeartbeatAt).to.deep.equal(lease.grantedAt);
        expect(lease.fence > 0n).to.equal(true);
        expect(lease.leaseToken).to.be.a('string').and.not.to.equal('');
        expect(job).to.include({ jobId, state: JobState.RUNNING, leaseId: lease.leaseId, attempts: 1 });
        expect(granted(await leases.requestLease(request))).to.deep.equal({ lease, job });
        const { leaseToken: _, ...rest } = lease;
        expect((await leases.getLease({ leaseId: lease.leaseId })).lease).to.deep.equal(rest);
      });

      it('grants the next job with its lease, which is LEASED until the first heartbeat', async () => {
        const { lease, job } = await acquired();
        expect(job).to.include({ state: JobState.LEASED, leaseId: lease.leaseId, attempts: 1 });
        expect(lease.ttlSec).to.equal(60);
        await leases.heartbeat({ leaseId: lease.leaseId, workerId: 'worker-1' });
        expect((await jobs.getJob({ jobId: job.jobId })).job?.state).to.equal(JobState.RUNNING);
      });

      it('selects jobs by every filter of the request', async () => {
        const { addonId, jobId } = await submit({ jobType: 'x', constraints: { gpu_required: true } });
        const good = {
          workerId: 'worker-1',
          addonId,
          maxUnits: 3,
          acceptJobTypes: ['x', 'y'],
          constraintsCapabilities: { gpu_available: true },
          waitMs: 0,
          requestId: newAddon(),
        };
        for (const bad of [
          { maxUnits: 2 },
          { acceptJobTypes: ['y'] },
          { constraintsCapabilities: {} },
          { addonId: 'another' },
        ]) {
          const { outcome } = await leases.acquireLease({ ...good, ...bad, requestId: undefined });
          expect(outcome.case, JSON.stringify(bad)).to.equal('denied');
          expect(outcome.value).to.include({ reason: 'No jobs available' });
          expect(outcome.case === 'denied' && outcome.value.retryAfterMs > 0n).to.equal(true);
        }
        const first = granted(await leases.acquireLease(good));
        expect(first.job.jobId).to.equal(jobId);
        expect(granted(await leases.acquireLease(good))).to.deep.equal(first);
      });

      it('waits for a job for up to wait_ms', async () => {
        const addonId = newAddon();
        const waiting = leases.acquireLease({ workerId: 'worker-1', addonId, waitMs: 60_000 });
        const { jobId } = await submit({ addonId });
        expect(granted(await waiting).job.jobId).to.equal(jobId);
      });

      it('denies with an answer, not an error, without capacity', async () => {
        const { capacity: before } = await stats.getCapacity({});
        await stats.setCapacity({ total: 0 });
        try {
          const { jobId } = await claim();
          const { outcome } = await leases.requestLease({ jobId });
          const used = before?.used;
          const reason = `Capacity exceeded: used=${used}, requested=3, capacity=0`;
          expect(outcome.case).to.equal('denied');
          expect(outcome.value).to.include({ reason });
          expect((await jobs.getJob({ jobId })).job?.state).to.equal(JobState.LEASE_PENDING);
          const none = await leases.acquireLease({ workerId: 'worker-1' });
          expect(none.outcome.value).to.include({ reason: `No capacity (busy=0, usable=0, leased=${used})` });
        } finally {
          await stats.setCapacity({ total: plenty });
        }
      });

      it('returns the capacity, and changes it', async () => {
        const { capacity: before } = await stats.getCapacity({});
        expect(before).to.include({ total: plenty, busyRating: 0, usable: plenty });
        const { capacity } = await stats.setCapacity({ busyRating: 9 });
        expect(capacity).to.include({ total: plenty, busyRating: 9, usable: plenty / 10 });
        expect(capacity?.available).to.equal(BigInt(plenty / 10) - (capacity?.used ?? 0n));
        expect((await stats.getCapacity({})).capacity).to.deep.equal(capacity);
        const { capacity: back } = await stats.setCapacity({ busyRating: 0, total: plenty });
        expect(back).to.include({ busyRating: 0, usable: plenty });
        for (const [request, field] of [
          [{}, 'total'],
          [{ total: -1 }, 'total'],
          [{ busyRating: 11 }, 'busy_rating'],
        ] as const) {
          const error = await failure(stats.setCapacity(request));
          expect(expectRpcError(error, Code.InvalidArgument, 'invalid_request')).to.deep.equal({ field });
        }
      });

      it('renews a lease', async () => {
        const { lease, job } = await acquired();
        const { leaseId, leaseToken } = lease;
        const said = { leaseToken, jobId: job.jobId, progress: 0.25, message: 'halfway, ü☃' };
        const { expiresAt, ttlRemainingMs, cancelRequested, drain } = await leases.heartbeat({
          ...owner(lease),
          ...said,
        });
        expect({ cancelRequested, drain }).to.deep.equal({ cancelRequested: false, drain: false });
        expect(Number(ttlRemainingMs)).to.be.within(55_000, 60_000);
        const { lease: found } = await leases.getLease({ leaseId });
        expect(found?.expiresAt).to.deep.equal(expiresAt);
        expect(msOf(found?.expiresAt) - msOf(found?.lastHeartbeatAt)).to.equal(60_000);
        const { job: running } = await jobs.getJob({ jobId: job.jobId });
        expect(running).to.include({ state: JobState.RUNNING, progress: 0.25, note: said.message });
        await jobs.cancelJob({ jobId: job.jobId });
        expect((await leases.heartbeat(owner(lease))).cancelRequested).to.equal(true);
      });

      it('releases a lease with a result, and answers again with the token', async () => {
        const { lease, job } = await requested();
        const request = {
          ...owner(lease),
          leaseToken: lease.leaseToken,
          jobId: job.jobId,
          status: FinalStatus.SUCCEEDED,
          resultData: value({ path: '/out.jpg', deep: [null, 1.5, true, { ü: '☃' }] }),
          metrics: { runtime_ms: 41234 },
        };
        const answer = await leases.releaseLease(request);
        expect(answer.requeued).to.equal(false);
        expect(answer.job).to.include({ state: JobState.DONE, attempts: 1 });
        expect(answer.lease).to.include({ state: LeaseState.RELEASED, releaseStatus: FinalStatus.SUCCEEDED });
        expect(answer.lease?.leaseToken).to.equal(undefined);
        expect(answer.lease?.endedAt).not.to.equal(undefined);
        const { result } = answer;
        expect(result).to.include({ jobId: job.jobId, status: FinalStatus.SUCCEEDED, attempts: 1 });
        expect(result?.error).to.equal(undefined);
        expect(result?.metrics).to.deep.equal({ runtime_ms: 41234 });
        expect(result?.startedAt).to.deep.equal(lease.grantedAt);
        expect((await jobs.getJob({ jobId: job.jobId })).result).to.deep.equal(result);
        expect(await leases.releaseLease(request)).to.deep.equal(answer);
        const other = { ...request, status: FinalStatus.FAILED };
        const error = await failure(leases.releaseLease(other));
        expectRpcError(error, Code.FailedPrecondition, 'lease_not_active');
      });

      it('accepts any JSON as a result, and none as null', async () => {
        const jsons = [undefined, null, '', 'text', 0, -1.5, false, [], {}, [[null], { a: [] }]];
        const told = await Promise.all(
          jsons.map(async (json) => {
            const { lease } = await acquired();
            const resultData = json === undefined ? undefined : value(json);
            const status = FinalStatus.SUCCEEDED;
            const { result } = await leases.releaseLease({ ...owner(lease), status, resultData });
            return result?.resultData && toJson(ValueSchema, result.resultData);
          }),
        );
        expect(told.map((each) => each ?? null)).to.deep.equal(jsons.map((each) => each ?? null));
      });

      const errors: [string, object | undefined, string | undefined, object | undefined][] = [
        ['no error', undefined, undefined, undefined],
        ['a message', { message: 'out of memory' }, 'out of memory', undefined],
        ['a code', { message: 'm', code: 'OOM' }, 'm', { message: 'm', code: 'OOM' }],
        ['a stack', { message: 'm', stack: 'at x' }, 'm', { message: 'm', stack: 'at x' }],
        ['no retry', { message: 'm', retryable: false }, 'm', { message: 'm', retryable: false }],
      ];
      for (const [what, error, text, detail] of errors) {
        it(`fails a job with ${what}, for good`, async () => {
          const { lease } = await acquired({ maxAttempts: 2 });
          const status = FinalStatus.FAILED;
          const answer = await leases.releaseLease({ ...owner(lease), status, error });
          expect(answer.requeued).to.equal(false);
          expect(answer.job?.state).to.equal(JobState.FAILED);
          expect(answer.result?.error).to.equal(text);
          expect(answer.result?.errorDetail).to.deep.equal(detail);
        });
      }

      it('requeues a job after a failure that may be retried, while attempts are left', async () => {
        const { lease, job } = await acquired({ maxAttempts: 2, retryBackoffS: 0 });
        const failed = { status: FinalStatus.FAILED, error: { message: 'flaky', retryable: true } };
        const first = await leases.releaseLease({ ...owner(lease), ...failed });
        expect(first.requeued).to.equal(true);
        expect(first.result).to.equal(undefined);
        expect(first.job).to.include({ state: JobState.QUEUED, attempts: 1 });
        expect(first.lease).to.include({ state: LeaseState.RELEASED, releaseStatus: FinalStatus.FAILED });
        const next = granted(await leases.acquireLease({ workerId: 'worker-1', addonId: job.addonId }));
        expect(next.lease.attempt).to.equal(2);
        expect(next.lease.fence > lease.fence).to.equal(true);
        const last = await leases.releaseLease({ ...owner(next.lease), ...failed });
        expect(last.requeued).to.equal(false);
        expect(last.job?.state).to.equal(JobState.FAILED);
        expect(last.result?.errorDetail).to.deep.equal({ message: 'flaky', retryable: true });
      });

      it('lists leases in pages, newest first', async () => {
        const workerId = newAddon();
        const ids = [];
        for (let n = 0; n < 3; n++) {
          const { addonId } = await submit();
          ids.unshift(granted(await leases.acquireLease({ workerId, addonId })).lease.leaseId);
        }
        const first = await leases.listLeases({ workerId, limit: 2, states: [LeaseState.ACTIVE] });
        const rest = await leases.listLeases({ workerId, limit: 2, cursor: first.nextCursor });
        expect(rest.nextCursor).to.equal(undefined);
        const told = [...first.leases, ...rest.leases];
        expect(told.map(({ leaseId }) => leaseId)).to.deep.equal(ids);
        for (const { leaseToken } of told) expect(leaseToken).to.equal(undefined);
        const [newest] = told;
        await leases.releaseLease({ leaseId: newest?.leaseId, workerId, status: FinalStatus.SUCCEEDED });
        const released = await leases.listLeases({ workerId, states: [LeaseState.RELEASED] });
        expect(released.leases.map(({ leaseId }) => leaseId)).to.deep.equal([newest?.leaseId]);
        const ofJob = await leases.listLeases({ jobId: newest?.jobId });
        expect(ofJob.leases).to.deep.equal(released.leases);
      });

      it('reports a lease as unknown, held by another worker, or ended', async () => {
        const { lease, job } = await acquired();
        const [theirs, status] = [owner(lease), FinalStatus.SUCCEEDED];
        const calls: [() => Promise<unknown>, Code, string][] = [
          [() => leases.getLease({ leaseId: nowhere }), Code.NotFound, 'lease_not_found'],
          [() => leases.getLease({}), Code.NotFound, 'lease_not_found'],
          [() => leases.requestLease({ jobId: nowhere }), Code.NotFound, 'job_not_found'],
          [() => leases.requestLease({}), Code.NotFound, 'job_not_found'],
          [
            async () => leases.requestLease({ jobId: (await submit()).jobId }),
            Code.FailedPrecondition,
            'job_not_claimed',
          ],
          [
            () => leases.requestLease({ jobId: job.jobId, addonId: 'x' }),
            Code.FailedPrecondition,
            'job_mismatch',
          ],
        ];
        for (const leaseId of [nowhere, 'nonsense', '']) {
          const request = { leaseId, workerId: 'worker-1', status };
          calls.push([() => leases.heartbeat(request), Code.NotFound, 'lease_not_found']);
          calls.push([() => leases.releaseLease(request), Code.NotFound, 'lease_not_found']);
        }
        const wrong: [object, Code, string, string][] = [
          [{ workerId: 'worker-2' }, Code.PermissionDenied, 'worker_mismatch', 'worker_id'],
          [{ leaseToken: nowhere }, Code.PermissionDenied, 'token_mismatch', 'lease_token'],
          [{ jobId: nowhere }, Code.FailedPrecondition, 'job_mismatch', 'job_id'],
        ];
        for (const [fields, code, reason, field] of wrong) {
          const lost = { ...theirs, status, ...fields };
          for (const call of [() => leases.heartbeat(lost), () => leases.releaseLease(lost)]) {
            expect(expectRpcError(await failure(call()), code, reason).field).to.equal(field);
          }
        }
        for (const [call, code, reason] of calls) expectRpcError(await failure(call()), code, reason);
        await leases.releaseLease({ ...theirs, status });
        const late = await failure(leases.heartbeat(theirs));
        expectRpcError(late, Code.FailedPrecondition, 'lease_not_active');
        expect(late.rawMessage).to.match(/released/);
      });

      it('names the invalid field of a lease request', async () => {
        const { lease } = await acquired();
        const theirs = owner(lease);
        const status = FinalStatus.FAILED;
        const long = 'x'.repeat(2_001);
        const nul = { kind: { case: 'stringValue', value: 'a\0b' } } as const;
        const calls: [() => Promise<unknown>, string][] = [
          [() => leases.requestLease({ jobId: nowhere, ttlSec: 0 }), 'ttl_sec'],
          [() => leases.requestLease({ jobId: nowhere, ttlSec: 3_601 }), 'ttl_sec'],
          [() => leases.requestLease({ jobId: nowhere, workerId: ' ' }), 'worker_id'],
          [() => leases.requestLease({ jobId: nowhere, requestId: '' }), 'request_id'],
          [() => leases.acquireLease({}), 'worker_id'],
          [() => leases.acquireLease({ workerId: 'w', maxUnits: -1 }), 'max_units'],
          [() => leases.acquireLease({ workerId: 'w', maxUnits: 0 }), 'max_units'],
          [() => leases.acquireLease({ workerId: 'w', waitMs: 60_001 }), 'wait_ms'],
          [() => leases.acquireLease({ workerId: 'w', acceptJobTypes: [''] }), 'accept_job_types[0]'],
          [() => leases.heartbeat({ leaseId: lease.leaseId }), 'worker_id'],
          [() => leases.heartbeat({ ...theirs, progress: 1.5 }), 'progress'],
          [() => leases.heartbeat({ ...theirs, message: long }), 'message'],
          [() => leases.heartbeat({ ...theirs, message: 'a\0b' }), 'message'],
          [() => leases.heartbeat({ ...theirs, leaseToken: long }), 'lease_token'],
          [() => leases.releaseLease({ leaseId: lease.leaseId, status }), 'worker_id'],
          [() => leases.releaseLease(theirs), 'status'],
          [() => leases.releaseLease({ ...theirs, status, resultData: nul }), 'result_data'],
          [() => leases.releaseLease({ ...theirs, status, error: { message: 'a\0b' } }), 'error'],
          [
            () => leases.releaseLease({ ...theirs, status, error: { message: 'm', code: long } }),
            'error.code',
          ],
          [() => leases.releaseLease({ ...theirs, status, metrics: { a: 'a\0b' } }), 'metrics.a'],
          [() => leases.listLeases({ limit: 0 }), 'limit'],
          [() => leases.listLeases({ limit: 201 }), 'limit'],
          [() => leases.listLeases({ cursor: 'nonsense' }), 'cursor'],
          [() => leases.listLeases({ jobId: 'nonsense' }), 'job_id'],
          [() => leases.listLeases({ states: [LeaseState.UNSPECIFIED] }), 'states[0]'],
        ];
        for (const [call, field] of calls) {
          const error = await failure(call());
          const metadata = expectRpcError(error, Code.InvalidArgument, 'invalid_request');
          expect(metadata, error.rawMessage).to.deep.equal({ field });
        }
      });

      it('lists the allowed enum names as clients send them', async () => {
        const theirs = { leaseId: nowhere, workerId: 'w' };
        const calls: [() => Promise<unknown>, string, DescEnum][] = [
          [() => leases.releaseLease(theirs), 'status', FinalStatusSchema],
          [() => leases.releaseLease({ ...theirs, status: 9 as FinalStatus }), 'status', FinalStatusSchema],
          [() => leases.listLeases({ states: [77 as LeaseState] }), 'states[0]', LeaseStateSchema],
        ];
        for (const [call, field, { values }] of calls) {
          const error = await failure(call());
          expect(expectRpcError(error, Code.InvalidArgument, 'invalid_request')).to.deep.equal({ field });
          const words = values.filter(({ number }) => number !== 0).map(({ name }) => name);
          expect(error.rawMessage).to.include(`must be one of ${words.join(', ')}, not`);
        }
      });

      it('accepts the shown state of a leased job, and changes only the sent fields', async () => {
        const { lease, job } = await acquired();
        const { jobId, state } = job;
        expect(state).to.equal(JobState.LEASED);
        const noted = await jobs.updateJobStatus({ jobId, state, note: 'warm', progress: 0.5 });
        expect(noted.job).to.include({ state, note: 'warm', progress: 0.5 });
        await leases.heartbeat(owner(lease));
        const again = await jobs.updateJobStatus({ jobId, state, note: 'warmer' });
        expect(again.job).to.include({ state: JobState.RUNNING, note: 'warmer' });
      });

      it('refuses a result of more than 1 MiB, or one that is nested too deeply', async () => {
        const { lease } = await acquired();
        const request = { ...owner(lease), status: FinalStatus.SUCCEEDED };
        const large = { ...request, resultData: value('x'.repeat(1024 * 1024)) };
        const tooLarge = await failure(leases.releaseLease(large));
        const metadata = expectRpcError(tooLarge, Code.ResourceExhausted, 'payload_too_large');
        expect(metadata).to.deep.equal({ field: 'result_data' });
        let deep: JsonValue = 1;
        for (let depth = 0; depth < 40; depth++) deep = depth % 2 === 0 ? [deep] : { deep };
        const tooDeep = await failure(leases.releaseLease({ ...request, resultData: value(deep) }));
        const { field } = expectRpcError(tooDeep, Code.InvalidArgument, 'invalid_request');
        expect(field).to.match(/^(result_data|body)$/);
        expect((await leases.releaseLease(request)).job?.state).to.equal(JobState.DONE);
      });
    });
  }
});
