/** Explanations of jobs and leases: every cause, produced by a real server. */
import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { causeCodes } from '../../../src/domain/explain/facts.ts';
import { stepKinds } from '../../../src/domain/explain/timeline.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import {
  type Body,
  cancel,
  claim,
  claimedJob,
  expectError,
  get,
  newAddon,
  post,
  retry,
  submit,
} from '../../support/jobs-api.ts';
import {
  heartbeat,
  leasedJob,
  nowhere,
  release,
  requestLease,
  setCapacity,
} from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { claimedFrom, complete, enqueue, fail, newStream } from '../../support/worker-api.ts';

const asserted = new Set<string>();

onEveryEngine((engine) => {
  describe('explain', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, {
        settings: { capacityTotal: 1_000, maxClaims: 1, claimTtlS: 600 },
      });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    const explainJob = async (jobId: string): Promise<Body> => {
      const { status, text, body } = await get(server, `/api/scheduler/jobs/${jobId}/explain`);
      expect(status, text).to.equal(200);
      expect(text).not.to.match(/token/);
      return body;
    };
    const explainLease = async (leaseId: string): Promise<Body> => {
      const { status, text, body } = await get(server, `/api/scheduler/lease/${leaseId}/explain`);
      expect(status, text).to.equal(200);
      expect(text).not.to.match(/token/);
      return body;
    };
    const codesOf = ({ causes }: Body): string[] => {
      for (const { code, text } of causes) {
        expect(causeCodes).to.include(code);
        expect(text)
          .to.be.a('string')
          .and.not.to.match(/undefined|null|NaN|Invalid/);
        asserted.add(code);
      }
      // A pause of several seconds in the test process counts as an outage. Only one test is about outages.
      return causes.map(({ code }: Body) => code).filter((code: string) => code !== 'server_away');
    };
    const causeOf = ({ causes }: Body, code: string): Body => {
      const found = causes.find((cause: Body) => cause.code === code);
      return found ?? expect.fail(`no ${code} among ${causes.map((cause: Body) => cause.code)}`);
    };
    const storyOf = ({ steps }: Body): string[] =>
      steps.map(({ type, kind }: Body) => type ?? kind).filter((word: string) => word !== 'OUTAGE');

    /** Makes a job's claim or lease older by the given time. */
    const age = (jobId: string, ms: number) =>
      server.database.query(
        `update live_jobs set ${[
          'check_at',
          'claim_expires_at',
          'started_at',
          'last_heartbeat_at',
          'expires_at',
          'lease_ends_at',
          'longest_silence_since',
        ]
          .map((column) => `${column} = ${column} - $2::float8 * interval '1 ms'`)
          .join(', ')} where job_id = $1`,
        [jobId, ms],
      );
    const stateOf = async (jobId: string) =>
      (await get(server, `/api/scheduler/jobs/${jobId}`)).body.job.state;
    const becomes = (jobId: string, state: string) =>
      eventually(`${jobId} is ${state}`, async () => ((await stateOf(jobId)) === state ? true : undefined));
    const acquire = async (stream: string, workerId = 'worker-1') =>
      claimedFrom(server, [stream], { worker_id: workerId });

    describe('for a waiting job', () => {
      /** A row of a worker that asks for any job, as another server would write it. */
      const workerForAll = () =>
        server.database.query(
          `insert into workers (worker_id, server_id, server_host, server_pid, peer, work_streams, heartbeat_streams,
            waiting_calls, since, last_heard_at, asks, asks_cut, expires_at)
          values ('for-all', gen_random_uuid(), 'h', 1, 'p', 1, 0, 0, now(), now(), $1::jsonb, false, now() + interval '1 hour')`,
          [
            JSON.stringify([
              {
                streams: null,
                addonId: null,
                jobTypes: null,
                maxCostUnits: null,
                available: [],
                refused: [],
                jobs: 1,
                isCut: true,
              },
            ]),
          ],
        );
      const noWorkers = () => server.database.query('delete from workers', []);
      beforeEach(workerForAll);
      afterEach(noWorkers);

      it('names the missing worker before the queue position if no worker asks for a job (A3)', async () => {
        await noWorkers();
        const stream = newStream();
        const jobs = [await enqueue(server, stream), await enqueue(server, stream)];
        const last = jobs[1]?.job_id;
        const unknown = await explainJob(last);
        expect(codesOf(unknown)).to.deep.equal([
          'waiting_for_worker',
          'waiting_in_line',
          'needs_stream_worker',
        ]);
        expect(causeOf(unknown, 'waiting_for_worker')).to.deep.include({
          text: `no known worker asks for stream ${stream} and may take this one`,
          facts: { worker_known: false },
        });
        // A call that waits at any server makes its worker known.
        const asking = post(server, '/internal/worker/claim', {
          worker_id: 'w-known',
          streams: [newStream(), stream],
          max_wait_ms: 0,
        });
        const taken = (await asking).body;
        expect(taken.claimed).to.equal(true);
        await eventually('the worker is known', async () =>
          codesOf(await explainJob(last))[0] === 'waiting_for_worker' &&
          causeOf(await explainJob(last), 'waiting_for_worker').facts.worker_known !== false
            ? true
            : undefined,
        );
        expect(causeOf(await explainJob(last), 'waiting_for_worker').text).to.include(
          'it is the first in the queue',
        );
        const completed = await complete(server, taken, { worker_id: 'w-known' });
        expect(completed.status, completed.text).to.equal(200);
        await cancel(server, last);
      });

      it('reports that the job is first and fits the capacity, and what it requires', async () => {
        const job = await submit(server, {
          unique: true,
          constraints: { gpu_required: true, cpu_heavy: true },
          payload: { secret: 'word' },
        });
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['waiting_for_worker', 'needs_capability', 'unique']);
        expect(causeOf(told, 'needs_capability').facts).to.deep.equal({ requires: ['gpu'], heavy: ['cpu'] });
        expect(told.summary).to.match(/^Waiting: it is the first in the queue and enough units are free: /);
        expect(told.job)
          .to.include({ job_id: job.job_id, addon_id: job.addon_id })
          .and.not.to.have.key('payload');
        expect([told.lease, told.attempts, told.steps_left_out]).to.deep.equal([null, [], 0]);
        expect(told.steps).to.have.length(1);
        expect(told.steps[0]).to.include({
          kind: 'EVENT',
          type: 'JOB_SUBMITTED',
          by: job.addon_id,
          times: 1,
        });
        expect(told.since).to.equal(told.steps[0].ts);
        await cancel(server, job.job_id);
      });

      it('reports how many jobs are before it, the first one, and its stream as the only way', async () => {
        const stream = newStream();
        const addon_id = newAddon();
        const first = await enqueue(server, stream, { addon_id, cost_units: 7 });
        await enqueue(server, stream, { addon_id });
        const other = await enqueue(server, stream, { addon_id: newAddon() });
        const last = await enqueue(server, stream, { addon_id });
        const urgent = await enqueue(server, stream, { addon_id, priority: 'URGENT' });
        const told = await explainJob(last.job_id);
        expect(codesOf(told)).to.deep.equal(['waiting_in_line', 'needs_stream_worker']);
        expect(causeOf(told, 'waiting_in_line').facts).to.deep.equal({
          ahead: 4,
          ahead_in_lane: 3,
          ahead_is_more: false,
          priority: 'NORMAL',
          head: { job_id: urgent.job_id, cost_units: 1 },
          lane_head: { job_id: urgent.job_id, cost_units: 1 },
        });
        expect(causeOf(await explainJob(other.job_id), 'waiting_in_line').facts).to.include({
          ahead: 3,
          ahead_in_lane: 0,
        });
        await cancel(server, urgent.job_id);
        const second = causeOf(await explainJob(other.job_id), 'waiting_in_line');
        expect(second.facts.head).to.deep.equal({ job_id: first.job_id, cost_units: 7 });
        expect(second.text).to.include(`the first of stream ${stream} is ${first.job_id}`);
      });

      it('names the missing worker if only jobs for other workers are before it (A3)', async () => {
        const before = await submit(server, { job_type: 'resize', cost_units: 10 });
        const job = await submit(server, { job_type: 'train', addon_id: newAddon() });
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['waiting_for_worker', 'waiting_in_line']);
        expect(told.summary).to.include('the next worker that asks for train gets it');
        // The claim proves the text: the job before it does not block it.
        const asked = { workerId: 'worker-1', acceptJobTypes: ['train'] };
        const { granted } = (await post(server, '/leasehold.v1.LeasesService/AcquireLease', asked)).body;
        expect(granted.job.jobId).to.equal(job.job_id);
        await release(server, granted.lease.leaseId, { job_id: job.job_id });
        await cancel(server, before.job_id);
      });

      it('names the queue position first if the first job does not fit and blocks others (A3)', async () => {
        const { lease, job: holder } = await leasedJob(server, { cost_units: 960 });
        const before = await submit(server, { job_type: 'resize', cost_units: 50 });
        const job = await submit(server, { job_type: 'train', addon_id: newAddon() });
        expect(codesOf(await explainJob(job.job_id))).to.deep.equal([
          'waiting_in_line',
          'waiting_for_worker',
        ]);
        for (const { job_id } of [before, job]) await cancel(server, job_id);
        await release(server, lease.lease_id, { job_id: holder.job_id });
      });

      it('writes a single attempt in the singular (A8)', async () => {
        const stream = newStream();
        await enqueue(server, stream, { max_attempts: 1 });
        const claimed = await acquire(stream);
        await fail(server, claimed);
        const dead = await explainJob(claimed.job_id);
        expect(dead.steps.map(({ text }: Body) => text)).to.include(
          `it became a dead letter of stream ${stream} after 1 attempt`,
        );
      });

      it('reports how many units are missing, and which leases end next', async () => {
        const { lease, job: holder } = await leasedJob(server, { cost_units: 960 }, { ttl_sec: 30 });
        const ahead = await submit(server, { priority: 'URGENT' });
        const job = await submit(server, { cost_units: 50 });
        const told = await explainJob(job.job_id);
        // No job for the same workers is before it.
        expect(codesOf(told)).to.deep.equal(['waiting_for_units', 'waiting_in_line']);
        expect(causeOf(told, 'waiting_in_line').text).to.include('none of them for the same workers');
        await cancel(server, ahead.job_id);
        const { facts, text } = causeOf(told, 'waiting_for_units');
        expect(facts).to.include({ cost_units: 50, usable: 1_000, used: 960, available: 40, missing: 10 });
        expect(facts.ending_next[0]).to.deep.equal({
          lease_id: lease.lease_id,
          worker_id: 'worker-1',
          cost_units: 960,
          expires_at: lease.expires_at,
        });
        expect(text).to.include('40 of 1000 are free').and.to.include('worker-1');

        const waits = await claim(server, job.addon_id, { worker_id: 'worker-2' });
        expect(codesOf(await explainJob(job.job_id))).to.deep.equal(['claimed']);
        for (let i = 0; i < 3; i++) {
          const { body } = await requestLease(server, { job_id: waits.job_id });
          expect(body.approved).to.equal(false);
        }
        const pending = await explainJob(job.job_id);
        expect(codesOf(pending)).to.deep.equal(['waiting_for_units', 'claimed']);
        expect(causeOf(pending, 'claimed').facts.worker_id).to.equal('worker-2');
        const denied = pending.steps.find(({ type }: Body) => type === 'LEASE_DENIED');
        expect(denied).to.include({ times: 3, by: 'worker-2' });
        expect(denied.text).to.include('Capacity exceeded: used=960, requested=50, capacity=1000');
        expect(denied.until).not.to.equal(null);
        await release(server, lease.lease_id, { job_id: holder.job_id });
        await cancel(server, job.job_id);
      });

      it('reports that a job costs more than the total, before and after it is unschedulable', async () => {
        const stream = newStream();
        const job = await enqueue(server, stream, { cost_units: 2_000 });
        expect(codesOf(await explainJob(job.job_id))).to.deep.equal([
          'costs_more_than_total',
          'needs_stream_worker',
        ]);
        await post(server, '/internal/worker/claim', { worker_id: 'w', streams: [stream], max_wait_ms: 0 });
        const told = await explainJob(job.job_id);
        expect(storyOf(told)).to.deep.equal(['JOB_SUBMITTED', 'JOB_UNSCHEDULABLE']);
        expect(codesOf(told)).to.deep.equal(['costs_more_than_total', 'needs_stream_worker']);
        expect(causeOf(told, 'costs_more_than_total').facts).to.include({ cost_units: 2_000, total: 1_000 });
        await cancel(server, job.job_id);
        // Any number of jobs before it can leave the queue, and it stays.
        const inLine = newStream();
        const before = await enqueue(server, inLine);
        const behind = await enqueue(server, inLine, { cost_units: 2_000 });
        const why = await explainJob(behind.job_id);
        expect(codesOf(why)).to.deep.equal([
          'costs_more_than_total',
          'waiting_in_line',
          'needs_stream_worker',
        ]);
        expect(why.summary).to.include('Waiting: needs 2,000 units, the total is 1,000; 1 job ahead');
        for (const { job_id } of [before, behind]) await cancel(server, job_id);
      });

      it('reports until when a job is delayed or waits for its backoff', async () => {
        const run_at = new Date(Date.now() + 3_600_000).toISOString();
        const later = await explainJob((await submit(server, { run_at })).job_id);
        expect(codesOf(later)).to.deep.equal(['run_at']);
        expect(later.causes[0].until).to.equal(run_at);

        const stream = newStream();
        await enqueue(server, stream, { max_attempts: 2, retry_backoff_s: 600 });
        const claim = await acquire(stream);
        await fail(server, claim);
        const told = await explainJob(claim.job_id);
        expect(codesOf(told)).to.deep.equal(['backoff', 'needs_stream_worker']);
        expect(told.causes[0].until).to.equal(told.job.next_retry_at);
        expect(told.steps.at(-1).text).to.match(
          /^it was requeued, to be retried in \d+ min( \d+ s)?: it broke$/,
        );
        expect(codesOf(told.attempts[0])).to.deep.equal(['failed_retryably']);
      });

      it('reports that a job without a backoff is retried at once', async () => {
        const stream = newStream();
        await enqueue(server, stream, { max_attempts: 2, retry_backoff_s: 0 });
        const claim = await acquire(stream);
        await fail(server, claim);
        const { steps } = await explainJob(claim.job_id);
        expect(steps.at(-1).text).to.equal('it was requeued, to be retried at once: it broke');
      });
    });

    describe('for a claimed or leased job', () => {
      it('reports that a claim expired, and that too many claims expired', async () => {
        const job = await claimedJob(server);
        expect(codesOf(await explainJob(job.job_id))).to.deep.equal(['claimed']);
        await server.database.query(
          "update live_jobs set claim_expires_at = clock_timestamp() - interval '5 s', check_at = clock_timestamp() + interval '1 h' where job_id = $1",
          [job.job_id],
        );
        expect(codesOf(await explainJob(job.job_id))).to.deep.equal(['claim_overdue']);
        await age(job.job_id, 3_700_000);
        await becomes(job.job_id, 'FAILED');
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['claims_exhausted']);
        expect(storyOf(told)).to.deep.equal(['JOB_SUBMITTED', 'JOB_CLAIMED', 'CLAIM_EXPIRED', 'JOB_FAILED']);
      });

      it('reports a lease as unconfirmed, running and overdue, and a cancellation request', async () => {
        const system = await post(server, '/api/system/scheduler/jobs', {
          type: 'generic',
          requested_units: 1,
          addon_id: newAddon(),
        });
        const { job_id } = system.body.job;
        const { body } = await post(server, '/api/system/scheduler/leases/request', {
          worker_id: 'worker-9',
          max_units: 1,
        });
        expect(body.job.job_id).to.equal(job_id);
        const { lease_id } = body.lease;
        expect(codesOf(await explainJob(job_id))).to.deep.equal(['waiting_for_first_heartbeat']);
        await heartbeat(server, lease_id, { worker_id: 'worker-9' });
        const running = await explainLease(lease_id);
        expect(codesOf(running)).to.deep.equal(['running']);
        expect(running.summary).to.match(
          /^Active: the last heartbeat of worker-9 was .* ago; without another/,
        );
        expect(running.lease.lease_id).to.equal(lease_id);
        const first = running.steps.find(({ type }: Body) => type === 'JOB_RUNNING');
        expect(first.text).to.match(/^first heartbeat of worker-9, .* after the grant$/);
        await cancel(server, job_id, { requested_by: 'ann', reason: 'not wanted' });
        expect(codesOf(await explainJob(job_id))).to.deep.equal(['running', 'cancel_requested']);
        // The lease is overdue, and the reaper has not processed it yet.
        await server.database.query(
          "update live_jobs set expires_at = clock_timestamp() - interval '5 s', check_at = clock_timestamp() + interval '1 h' where job_id = $1",
          [job_id],
        );
        expect(codesOf(await explainJob(job_id))).to.deep.equal(['lease_overdue', 'cancel_requested']);
        await age(job_id, 3_700_000);
        await becomes(job_id, 'CANCELED');
        const over = await explainJob(job_id);
        expect(codesOf(over)).to.deep.equal(['canceled', 'no_heartbeat_since']);
        expect(over.steps.map(({ text }: Body) => text)).to.include('ann asked to cancel it: not wanted');
      });
    });

    describe('for an expired lease', () => {
      it('reports since when no heartbeat arrived, and records the silence in the timeline', async () => {
        const { lease, job } = await leasedJob(
          server,
          { max_attempts: 2, retry_backoff_s: 600 },
          { ttl_sec: 60 },
        );
        await age(job.job_id, 46_000);
        await heartbeat(server, lease.lease_id);
        await age(job.job_id, 90_000);
        await becomes(job.job_id, 'QUEUED');
        const told = await explainLease(lease.lease_id);
        expect(codesOf(told)).to.deep.equal(['no_heartbeat_since', 'long_silence']);
        const [{ facts, text }] = told.causes;
        expect(facts).to.include({
          worker_id: 'worker-1',
          ttl_sec: 60,
          last_heartbeat_at: told.lease.last_heartbeat_at,
        });
        expect(text).to.include(`no heartbeat of worker-1 since ${facts.last_heartbeat_at}`);
        const silence = told.steps.findLast(({ kind }: Body) => kind === 'SILENCE');
        expect(silence).to.include({ ts: told.lease.last_heartbeat_at, until: told.lease.ended_at });
        expect(silence.text).to.match(
          /^no heartbeat of worker-1 for [\d mins]+ after its last heartbeat, 1\d\d % of its TTL$/,
        );
        expect((await explainJob(job.job_id)).attempts[0]).to.include({
          attempt_id: lease.lease_id,
          attempt: 1,
        });
      });

      it('reports that no heartbeat arrived after the grant, and that no attempt is left', async () => {
        const { lease, job } = await leasedJob(server);
        await age(job.job_id, 90_000);
        await becomes(job.job_id, 'TIMEOUT');
        expect(codesOf(await explainLease(lease.lease_id))).to.deep.equal(['never_heard_of']);
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['attempts_exhausted', 'never_heard_of']);
        expect(told.steps.at(-1).type).to.equal('JOB_TIMEOUT');
        expect(told.steps.map(({ text }: Body) => text).join('\n')).to.include(
          'the lease expired: no heartbeat of worker-1 came after the grant',
        );
        await retry(server, job.job_id, { requested_by: 'ann', reason: 'once more' });
        const again = await explainJob(job.job_id);
        expect(again.steps.at(-1)).to.include({
          type: 'JOB_RETRIED',
          by: 'ann',
          text: 'ann requeued it: once more',
        });
        await cancel(server, job.job_id);
      });

      it('reports that a lease reached its maximum runtime', async () => {
        const { lease, job } = await leasedJob(server, { max_runtime_s: 60 });
        await heartbeat(server, lease.lease_id);
        await age(job.job_id, 61_000);
        await becomes(job.job_id, 'TIMEOUT');
        const told = await explainLease(lease.lease_id);
        expect(codesOf(told)).to.deep.equal(['over_max_runtime']);
        expect(told.causes[0].facts.max_runtime_s).to.equal(60);
      });

      it('reports that the stream that renewed the lease closed, during the job and afterwards', async () => {
        const { lease, job } = await leasedJob(server);
        const beat = { leaseId: lease.lease_id, workerId: 'worker-1' };
        const stream = new HeartbeatClient(server.grpc);
        stream.send(frame([beat]));
        await stream.hears(1);
        expect(codesOf(await explainLease(lease.lease_id))).to.deep.equal(['running']);
        stream.close();
        const cut = await eventually('the server sees that the stream is cut', async () => {
          const told = await explainLease(lease.lease_id);
          return codesOf(told).length > 1 ? told : undefined;
        });
        expect(codesOf(cut)).to.deep.equal(['running', 'stream_closed']);
        expect(causeOf(cut, 'stream_closed').facts.stream_end).to.equal('gone');

        const other = new HeartbeatClient(server.grpc);
        other.send(frame([beat]));
        await other.hears(1);
        expect(codesOf(await explainLease(lease.lease_id))).to.deep.equal(['running']);
        other.end();
        await other.ended;
        other.close();
        await age(job.job_id, 90_000);
        await becomes(job.job_id, 'TIMEOUT');
        const told = await explainLease(lease.lease_id);
        expect(codesOf(told)).to.deep.equal(['no_heartbeat_since', 'stream_closed']);
        const closed = causeOf(told, 'stream_closed');
        expect(closed.facts).to.include({ worker_id: 'worker-1', stream_end: 'ended' });
        expect(closed.since).to.equal(closed.facts.stream_closed_at);
      });

      it('reports the closed stream also if the worker is the first to notice the expiry', async () => {
        const name = newStream();
        await enqueue(server, name, { max_attempts: 1 });
        const claim = await acquire(name);
        const stream = new HeartbeatClient(server.grpc);
        stream.send(frame([{ leaseId: claim.attempt_id, workerId: 'worker-1' }]));
        await stream.hears(1);
        stream.end();
        await stream.ended;
        stream.close();
        await server.database.query(
          "update live_jobs set expires_at = clock_timestamp(), check_at = clock_timestamp() + interval '1 h' where job_id = $1",
          [claim.job_id],
        );
        expect((await fail(server, claim)).status).to.equal(409);
        const told = await explainLease(claim.attempt_id);
        expect(codesOf(told)).to.deep.equal(['no_heartbeat_since', 'stream_closed']);
      });

      it('does not blame a stream for a lease that was renewed in another way afterwards', async () => {
        const { lease, job } = await leasedJob(server);
        const stream = new HeartbeatClient(server.grpc);
        stream.send(frame([{ leaseId: lease.lease_id, workerId: 'worker-1' }]));
        await stream.hears(1);
        stream.end();
        await stream.ended;
        stream.close();
        // The heartbeat arrives a while after the stream has closed.
        await heartbeat(server, lease.lease_id);
        await server.database.query(
          "update live_jobs set last_heartbeat_at = last_heartbeat_at + interval '5 s' where job_id = $1",
          [job.job_id],
        );
        expect(codesOf(await explainLease(lease.lease_id))).to.deep.equal(['running']);
        await release(server, lease.lease_id);
      });

      it('reports that no server was alive during the silence', async () => {
        const { lease, job } = await leasedJob(server);
        const over = await leasedJob(server);
        await release(server, over.lease.lease_id);
        const jobIds = `{${job.job_id},${over.job.job_id}}`;
        await server.database.query(
          "update jobs set created_at = created_at - interval '60 s' where job_id = any ($1)",
          [jobIds],
        );
        await server.database.query(
          "update job_outcomes set finished_at = finished_at - interval '30 s' where job_id = $1",
          [over.job.job_id],
        );
        await server.database.query("update pulse set alive_at = clock_timestamp() - interval '10 s'", []);
        await eventually('the outage is found', async () => {
          const rows = await server.database.query('select from outages where next_lease_id is null', []);
          return rows.length > 0 ? true : undefined;
        });
        expect(causeOf(await explainLease(lease.lease_id), 'server_away').text).to.match(
          /^no server ran, or none reached the database, for \d+/,
        );
        // The explanation includes the outage for a job that was live then, and for no job that ended earlier.
        const tellsOfIt = async (jobId: string) =>
          (await explainJob(jobId)).steps.some(({ kind }: Body) => kind === 'OUTAGE');
        expect(await tellsOfIt(job.job_id)).to.equal(true);
        expect(await tellsOfIt(over.job.job_id)).to.equal(false);
        await server.database.query(
          'update live_jobs set expires_at = clock_timestamp(), check_at = clock_timestamp() where job_id = $1',
          [job.job_id],
        );
        await becomes(job.job_id, 'TIMEOUT');
        const told = await explainLease(lease.lease_id);
        expect(codesOf(told)).to.deep.equal(['never_heard_of']);
        expect(causeOf(told, 'server_away').facts.away_ms).to.be.at.least(9_000);
        expect(causeOf(told, 'server_away').text).to.match(/; the lease was extended by that time$/);
        expect(storyOf(await explainJob(job.job_id))).to.include('LEASE_EXPIRED');
        // As a lease that max_runtime_s kept from an extension. The job's outcome holds its last lease.
        const shortened = await server.database.query(
          `update job_outcomes set expires_at = (select ended_at - interval '1 s' from outages) where lease_id = $1
            returning lease_id`,
          [lease.lease_id],
        );
        expect(shortened).to.have.length(1);
        const short = causeOf(await explainLease(lease.lease_id), 'server_away');
        expect(short.text).to.match(/; the lease expired during that time$/);
        await server.database.query('delete from outages', []);
      });
    });

    describe('for an ended job', () => {
      it('reports that the job is done, by which worker and under which fence', async () => {
        const { lease, job } = await leasedJob(server);
        await release(server, lease.lease_id, { result_data: { secret: 'word' } });
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['done', 'released']);
        expect(told.attempts[0]).to.include({
          fence: lease.fence,
          worker_id: 'worker-1',
          release_status: 'SUCCEEDED',
        });
        expect(codesOf(told.attempts[0])).to.deep.equal(['released']);
        expect(storyOf(told)).to.deep.equal([
          'JOB_SUBMITTED',
          'JOB_CLAIMED',
          'JOB_LEASE_PENDING',
          'LEASE_GRANTED',
          'LEASE_RELEASED',
          'JOB_DONE',
        ]);
      });

      it('reports the failure and its cause, and that the stream made the job a dead letter', async () => {
        const stream = newStream();
        await enqueue(server, stream, { max_attempts: 1 });
        const claim = await acquire(stream);
        await fail(server, claim, { error: { code: 'E_INPUT', message: 'unreadable', retryable: false } });
        const told = await explainJob(claim.job_id);
        expect(codesOf(told)).to.deep.equal(['failed', 'released', 'dead_lettered']);
        expect(told.summary).to.include('unreadable');
        expect(told.causes[2].facts.stream).to.equal(stream);
      });

      it('reports which actor canceled the job', async () => {
        const job = await submit(server, {});
        await cancel(server, job.job_id, { requested_by: 'ann', reason: 'too late' });
        const told = await explainJob(job.job_id);
        expect(codesOf(told)).to.deep.equal(['canceled']);
        expect(told.causes[0].text).to.equal('it was canceled by ann: too late');
      });
    });

    it('omits the middle of a very long history, and reports how many steps are omitted', async () => {
      const { lease, job } = await leasedJob(server);
      await server.database.query(
        `insert into job_events (at, job_id, type, from_state, to_state, actor, data)
        select clock_timestamp(), $1, 5, 3, 3, 'worker-1', jsonb_build_object('reason', 'no ' || n) from generate_series(1, 1000) n`,
        [job.job_id],
      );
      const told = await explainJob(job.job_id);
      expect([told.steps.length, told.steps_left_out, told.left_out_after]).to.deep.equal([200, 804, 20]);
      expect([told.steps[0].type, told.steps.at(-1).text]).to.deep.equal([
        'JOB_SUBMITTED',
        'worker-1 was denied a lease: no 1000',
      ]);
      const one = await explainLease(lease.lease_id);
      expect(storyOf(one)).to.deep.equal(['LEASE_GRANTED']);
      await release(server, lease.lease_id);
    });

    it('returns the same explanation over RPC', async () => {
      const { lease, job } = await leasedJob(server);
      const call = (body: object) => post(server, `/${StatsService.typeName}/Explain`, body);
      const { body } = await call({ jobId: job.job_id });
      const told = await explainJob(job.job_id);
      const { explanation } = body;
      expect(explanation.job)
        .to.include({ jobId: job.job_id, state: 'JOB_STATE_RUNNING' })
        .and.not.to.have.key('payload');
      expect(explanation.causes.map(({ code }: Body) => code)).to.deep.equal(codesOf(told));
      expect(explanation.steps.map(({ type, text, kind }: Body) => [type, text, kind])).to.deep.equal(
        told.steps.map(({ type, text, kind }: Body) => [type, text, `STEP_KIND_${kind}`]),
      );
      expect(explanation.attempts[0].lease).to.include({
        leaseId: lease.lease_id,
        fence: String(lease.fence),
      });
      const ofLease = (await call({ leaseId: lease.lease_id })).body.explanation;
      expect(ofLease.lease.leaseId).to.equal(lease.lease_id);
      expect((await call({})).body.message).to.match(/^invalid_request: job_id: is required, or lease_id$/);
      expect((await call({ jobId: nowhere })).body.message).to.match(/^job_not_found/);
      expect((await call({ leaseId: 'x' })).body.message).to.match(/^lease_not_found/);
      await release(server, lease.lease_id);
    });

    it('answers 404 for an unknown job or lease', async () => {
      for (const id of [nowhere, 'no-such', '%00']) {
        expectError(await get(server, `/api/scheduler/jobs/${id}/explain`), {
          status: 404,
          code: 'job_not_found',
        });
        expectError(await get(server, `/api/scheduler/lease/${id}/explain`), {
          status: 404,
          code: 'lease_not_found',
        });
      }
    });

    it('reports that the capacity was lowered', async () => {
      const job = await submit(server, { cost_units: 950 });
      await setCapacity(server, { busy_rating: 1 });
      const told = await explainJob(job.job_id);
      // The dispatcher does not skip the job: it keeps its position until enough units are free.
      const missing = causeOf(told, 'waiting_for_units');
      expect(missing.facts).to.include({ usable: 900, total: 1_000, busy_rating: 1 });
      expect(missing.text).to.include('900 of 1,000 are usable with a busy rating of 1');
      await setCapacity(server, { busy_rating: 0 });
      await cancel(server, job.job_id);
    });

    describe('for all causes', () => {
      it('documents every cause and every kind of step in the API description', () => {
        const words = readFileSync(
          new URL('../../../proto/leasehold/v1/explain.proto', import.meta.url),
          'utf8',
        );
        for (const code of causeCodes) expect(words).to.include(`\`${code}\``);
        for (const kind of stepKinds) expect(words).to.include(`STEP_KIND_${kind} =`);
      });

      it('uses no cause that this file does not assert', () => {
        expect([...causeCodes].filter((code) => !asserted.has(code))).to.deep.equal([]);
      });
    });
  });
});
