/** Explanations of jobs and leases: every cause, produced by a real server. */
import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { causeCodes } from '../../../src/domain/explain/facts.ts';
import { stepKinds } from '../../../src/domain/explain/timeline.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { explainApi, explainSettings, waitingCauses } from '../../support/explain-api.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import {
  type Body,
  cancel,
  claimedJob,
  expectError,
  get,
  newAddon,
  post,
  retry,
  submit,
} from '../../support/jobs-api.ts';
import { heartbeat, leasedJob, nowhere, release } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { enqueue, fail, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  describe('explain', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: explainSettings });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    const { asserted, explainJob, explainLease, codesOf, causeOf, storyOf, age, becomes, acquire } =
      explainApi(() => server);

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

    describe('for all causes', () => {
      it('documents every cause and every kind of step in the API description', () => {
        const words = readFileSync(
          new URL('../../../proto/leasehold/v1/explain.proto', import.meta.url),
          'utf8',
        );
        for (const code of causeCodes) expect(words).to.include(`\`${code}\``);
        for (const kind of stepKinds) expect(words).to.include(`STEP_KIND_${kind} =`);
      });

      it('uses no cause that the tests of explanations do not assert', () => {
        // Quotas need authentication: test/engine/quotas asserts their cause.
        const elsewhere = [...waitingCauses, 'tenant_quota'];
        const others = causeCodes.filter((code) => !elsewhere.includes(code));
        expect(others.filter((code) => !asserted.has(code))).to.deep.equal([]);
      });
    });
  });
});
