import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { claimedJob, eventsOf, expectTime, read } from '../../support/jobs-api.ts';
import {
  capacityOf,
  leasedJob,
  release,
  requestLease,
  setCapacity,
  typesOf,
} from '../../support/leases-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: denial of a lease for lack of capacity', () => {
    const share = shareServer(engine, { capacityTotal: 70 });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    after(() => share.leave());

    /** Every test releases all units that it took, so the next one starts with all 70 units. */
    const leases: string[] = [];
    const take = async (units: number) => {
      const { lease } = await leasedJob(server, { cost_units: units });
      leases.push(lease.lease_id);
    };
    afterEach(async () => {
      for (const leaseId of leases.splice(0)) await release(server, leaseId);
      await setCapacity(server, { total: 70, busy_rating: 0 });
      expect(await capacityOf(server)).to.include({ used: 0, available: 70 });
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    it("denies a lease with 200 and the contract's fields", async () => {
      await take(60);
      const { job_id } = await claimedJob(server, { cost_units: 30 });
      const { status, body } = await requestLease(server, { job_id });
      expect(status).to.equal(200);
      const { retry_after_sec } = body;
      expect(body).to.deep.equal({
        approved: false,
        retry_after_sec,
        reason: 'Capacity exceeded: used=60, requested=30, capacity=70',
      });
      expect(Number.isInteger(retry_after_sec) && retry_after_sec >= 1, `${retry_after_sec}`).to.equal(true);
    });

    it('counts only usable units as capacity', async () => {
      await setCapacity(server, { busy_rating: 5 });
      await take(30);
      const { job_id } = await claimedJob(server, { cost_units: 6 });
      const { body } = await requestLease(server, { job_id });
      expect(body.reason).to.equal('Capacity exceeded: used=30, requested=6, capacity=35');
    });

    it('denies a lease with the same fields if all units are used', async () => {
      await take(70);
      const { job_id } = await claimedJob(server, { cost_units: 1 });
      const { body } = await requestLease(server, { job_id });
      expect(body.reason).to.equal('Capacity exceeded: used=70, requested=1, capacity=70');
    });

    it('leaves a denied job LEASE_PENDING with a renewed claim, and records it in the history', async () => {
      await take(60);
      const claimed = await claimedJob(server, { cost_units: 30 });
      await requestLease(server, { job_id: claimed.job_id });
      const { job, result } = await read(server, claimed.job_id);
      expect(job).to.include({ state: 'LEASE_PENDING', claimed_by: 'worker-1', lease_id: null, attempts: 0 });
      expect(result).to.equal(null);
      expect(Date.parse(job.claim_expires_at)).to.be.above(Date.parse(claimed.claim_expires_at));
      expectTime(job.claim_expires_at, { of: Date.now() + 60_000, withinMs: 5_000 });
      const event = (await eventsOf(server, claimed.job_id)).at(-1);
      expect(event.type).to.equal('LEASE_DENIED');
      expect(event.data).to.include({ reason: 'Capacity exceeded: used=60, requested=30, capacity=70' });
      const again = await requestLease(server, { job_id: claimed.job_id });
      expect(again.body.approved).to.equal(false);
      expect((await read(server, claimed.job_id)).job.state).to.equal('LEASE_PENDING');
    });

    it('approves a denied lease once units are free again', async () => {
      await take(60);
      const { job_id } = await claimedJob(server, { cost_units: 30 });
      expect((await requestLease(server, { job_id })).body.approved).to.equal(false);
      await release(server, leases.pop() ?? '');
      const { body } = await requestLease(server, { job_id });
      expect(body.approved).to.equal(true);
      leases.push(body.lease.lease_id);
      expect(await typesOf(server, job_id)).to.include.members(['LEASE_DENIED', 'LEASE_GRANTED']);
    });

    it('approves a lease that uses exactly the free units', async () => {
      await take(40);
      await take(30);
      expect(await capacityOf(server)).to.include({ used: 70, available: 0 });
    });

    it('never grants more units than the total to concurrent requests', async () => {
      const jobs = await Promise.all(Array.from({ length: 20 }, () => claimedJob(server, { cost_units: 9 })));
      const answers = await Promise.all(jobs.map(({ job_id }) => requestLease(server, { job_id })));
      const approved = answers.filter(({ body }) => body.approved);
      leases.push(...approved.map(({ body }) => body.lease.lease_id));
      expect(approved).to.have.length(7);
      expect((await capacityOf(server)).used).to.equal(63);
    });

    it('denies a claimed job that costs more than the lowered total, and does not refuse it', async () => {
      await setCapacity(server, { total: 71 });
      const { job_id } = await claimedJob(server, { cost_units: 71 });
      await setCapacity(server, { total: 70 });
      const { status, body } = await requestLease(server, { job_id });
      expect(status).to.equal(200);
      expect(body).to.include({
        approved: false,
        reason: 'Capacity exceeded: used=0, requested=71, capacity=70',
      });
    });
  });
});
