import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { explainApi, explainSettings, waitingCauses } from '../../support/explain-api.ts';
import { type Body, cancel, claim, newAddon, post, submit } from '../../support/jobs-api.ts';
import { leasedJob, release, requestLease, setCapacity } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { complete, enqueue, fail, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  describe('the explanation of a waiting job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: explainSettings });
    });
    afterEach(async () => {
      await noWorkers();
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => server.stop());

    const { asserted, explainJob, codesOf, causeOf, storyOf, acquire } = explainApi(() => server);

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
      expect(codesOf(await explainJob(job.job_id))).to.deep.equal(['waiting_in_line', 'waiting_for_worker']);
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
      expect(codesOf(why)).to.deep.equal(['costs_more_than_total', 'waiting_in_line', 'needs_stream_worker']);
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

    it('asserts every cause of a wait in this file', () => {
      expect(waitingCauses.filter((code) => !asserted.has(code))).to.deep.equal([]);
    });
  });
});
