import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, cancel, eventsOf, expectError, expectTime, read } from '../../support/jobs-api.ts';
import { heartbeat, leasedJob, plenty, readLease, release } from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';

interface Leased {
  lease: Body;
  job: Body;
}

onEveryEngine((engine) => {
  describe('the queue contract: expiry of a lease', () => {
    const share = shareServer(engine, { capacityTotal: plenty });
    let server: TestServer;

    // One wait for all tests: each job is leased for a second, and only one worker sends heartbeats.
    let last: Leased;
    let more: Leased;
    let wanted: Leased;
    let short: Leased;
    let alive: Leased;
    let beats: Promise<Body[]>;
    before(async () => {
      server = await share.start();
      const leased = (fields: object = {}) => leasedJob(server, fields, { ttl_sec: 1 });
      [alive, last, more, wanted, short] = await Promise.all([
        leased(),
        leased(),
        leased({ max_attempts: 2, retry_backoff_s: 600 }),
        leased({ max_attempts: 2 }),
        leasedJob(server, { max_runtime_s: 1 }, { ttl_sec: 60 }),
      ]);
      beats = beating(alive.lease);
      // The test that awaits the result reports its failure, if that test runs.
      beats.catch(() => {});
      await cancel(server, wanted.job.job_id);
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    const beating = async ({ lease_id, expires_at }: Body): Promise<Body[]> => {
      const answers: Body[] = [];
      while (Date.now() < Date.parse(expires_at) + 300) {
        answers.push(await heartbeat(server, lease_id));
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return answers;
    };

    const eventOf = ({ job }: Leased, type: string): Promise<Body> =>
      eventually(`${type} of a job`, async () =>
        (await eventsOf(server, job.job_id)).find((event) => event.type === type),
      );

    it('expires a lease on time and no sooner, and ends its job as TIMEOUT', async () => {
      const event = await eventOf(last, 'JOB_TIMEOUT');
      expect(event.data).to.include({ from: 'RUNNING', to: 'TIMEOUT' });
      const deadline = Date.parse(last.lease.expires_at);
      expect(Date.parse(event.ts), 'not early').to.be.at.least(deadline);
      expectTime(event.ts, { of: deadline, withinMs: 1_500 });
      const { job, result } = await read(server, last.job.job_id);
      expect(job).to.include({ state: 'TIMEOUT', attempts: 1, lease_id: last.lease.lease_id });
      expect(result).to.include({ status: 'TIMEOUT', result_data: null, attempts: 1 });
      expect(result.started_at).to.equal(last.lease.granted_at);
      expect(result.error).to.be.a('string').and.not.to.equal('');
      const lease = await readLease(server, last.lease.lease_id);
      expect(lease).to.include({ state: 'EXPIRED', release_status: null });
      expect(Date.parse(lease.ended_at)).to.be.at.least(deadline);
      expect((await eventOf(last, 'LEASE_EXPIRED')).lease_id).to.equal(lease.lease_id);
    });

    it("refuses a worker's calls after the expiry with 409 and the time of the expiry", async () => {
      await eventOf(last, 'LEASE_EXPIRED');
      const { lease_id, lease_token, expires_at } = last.lease;
      for (const tell of [heartbeat, release]) {
        const answer = await tell(server, lease_id, { lease_token });
        expectError(answer, { status: 409, code: 'lease_not_active' });
        expect(answer.body.detail)
          .to.match(/expired/)
          .and.to.include(expires_at);
      }
      expect((await read(server, last.job.job_id)).job.state).to.equal('TIMEOUT');
    });

    it('requeues the job of an expired lease after a backoff if attempts are left', async () => {
      const requeued = await eventOf(more, 'JOB_REQUEUED');
      expect(requeued.data).to.include({ from: 'RUNNING', to: 'QUEUED' });
      const { job, result } = await read(server, more.job.job_id);
      expect(job).to.include({ state: 'QUEUED', attempts: 1, claimed_by: null });
      expectTime(job.next_retry_at, { of: Date.now() + 525_000, withinMs: 80_000 });
      expect(result).to.equal(null);
    });

    it('ends the job of an expired lease as CANCELED if a client asked for that', async () => {
      const { data } = await eventOf(wanted, 'JOB_CANCELED');
      expect(data.reason).to.match(
        /^a client requested the cancellation; the lease expired: worker \S+ has sent no heartbeat since /,
      );
      expect((await read(server, wanted.job.job_id)).job.state).to.equal('CANCELED');
    });

    it('expires a lease after max_runtime_s despite heartbeats', async () => {
      await eventOf(short, 'JOB_TIMEOUT');
    });

    it('keeps a lease active as long as heartbeats arrive', async () => {
      for (const { status, text } of await beats) expect(status, text).to.equal(200);
      expect((await read(server, alive.job.job_id)).job).to.include({ state: 'RUNNING', attempts: 1 });
    });
  });
});
