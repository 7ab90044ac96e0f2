import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, engineOn, engineSettings } from '../../support/jobs.ts';
import { ask, cancel, claimedJob, expectError, get } from '../../support/jobs-api.ts';
import {
  capacityOf,
  capacityPath,
  leasedJob,
  release,
  requestLease,
  setCapacity,
} from '../../support/leases-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import { complete, fail, grantedJob } from '../../support/system-api.ts';

onEveryEngine((engine) => {
  describe('the capacity', () => {
    const share = shareServer(engine, { capacityTotal: 70 });
    let server: TestServer;
    before(async () => {
      server = await share.start();
      // Claims that earlier tests have left count as reserved.
      reserved = (await capacityOf(server)).reserved;
    });
    afterEach(async () => {
      await setCapacity(server, { total: 70, busy_rating: 0 });
      expect(await capacityOf(server)).to.include({ used: 0, available: 70, reserved });
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });
    after(() => share.leave());
    let reserved: number;

    const full = ['total', 'busy_rating', 'usable', 'used', 'available', 'reserved'];

    it('returns all fields of the capacity', async () => {
      const answer = await get(server, capacityPath);
      expect(answer.status).to.equal(200);
      expect(answer.body).to.deep.equal({
        total: 70,
        busy_rating: 0,
        usable: 70,
        used: 0,
        available: 70,
        reserved,
      });
    });

    it('counts active leases as used, and claimed jobs without a lease as reserved', async () => {
      const { job_id } = await claimedJob(server, { cost_units: 12 });
      expect(await capacityOf(server)).to.include({ used: 0, available: 70, reserved: reserved + 12 });
      const { lease } = (await requestLease(server, { job_id })).body;
      expect(await capacityOf(server)).to.include({ used: 12, available: 58, reserved });
      await release(server, lease.lease_id);
    });

    it('frees capacity for every way in which a lease or a claim ends', async () => {
      const { job_id } = await claimedJob(server, { cost_units: 3 });
      await cancel(server, job_id);
      expect(await capacityOf(server)).to.include({ used: 0, reserved });
      for (const status of ['SUCCEEDED', 'FAILED', 'CANCELED', 'TIMEOUT']) {
        const { lease } = await leasedJob(server, { cost_units: 9 });
        expect((await capacityOf(server)).used).to.equal(9);
        await release(server, lease.lease_id, { status });
        expect((await capacityOf(server)).used, status).to.equal(0);
      }
      for (const end of [complete, fail]) {
        const { lease } = await grantedJob(server, { requested_units: 9 });
        expect((await capacityOf(server)).used).to.equal(9);
        await end(server, lease.lease_id);
        expect((await capacityOf(server)).used).to.equal(0);
      }
      await leasedJob(server, { cost_units: 9 }, { ttl_sec: 1 });
      await eventually('the lease expires', async () =>
        (await capacityOf(server)).used === 0 ? true : undefined,
      );
    });

    const ratings = [
      [0, 75],
      [1, 67],
      [3, 52],
      [8, 15],
      [9, 7],
      [10, 0],
    ] as const;
    it('lowers the usable units by a tenth for each point of the busy rating, rounded down', async () => {
      for (const [busy_rating, usable] of ratings) {
        const { status, body } = await setCapacity(server, { total: 75, busy_rating });
        expect(status).to.equal(200);
        expect(body).to.have.all.keys(...full);
        expect(body).to.include({ total: 75, busy_rating, usable, used: 0, available: usable });
        expect(await capacityOf(server)).to.deep.equal(body);
      }
    });

    it('changes total and busy rating separately, and treats null as absent', async () => {
      expect((await setCapacity(server, { total: 80, unknown: 1 })).body).to.include({
        total: 80,
        busy_rating: 0,
      });
      expect((await setCapacity(server, { busy_rating: 3, total: null })).body).to.include({
        total: 80,
        busy_rating: 3,
      });
      expect((await setCapacity(server, { total: 0, busy_rating: null })).body).to.include({
        total: 0,
        busy_rating: 3,
        usable: 0,
      });
    });

    it('leaves running jobs alone when the capacity shrinks', async () => {
      const { lease } = await leasedJob(server, { cost_units: 60 });
      const { body } = await setCapacity(server, { total: 50 });
      expect(body).to.include({ usable: 50, used: 60, available: -10 });
      const { job_id } = await claimedJob(server, { cost_units: 1 });
      const denied = (await requestLease(server, { job_id })).body;
      expect(denied.reason).to.equal('Capacity exceeded: used=60, requested=1, capacity=50');
      await release(server, lease.lease_id);
      const { body: approved } = await requestLease(server, { job_id });
      expect(approved.approved).to.equal(true);
      await release(server, approved.lease.lease_id);
    });

    it('grants waiting requests at once when the capacity grows', async () => {
      await setCapacity(server, { total: 0 });
      const { job_id } = await claimedJob(server, { cost_units: 5 });
      expect((await requestLease(server, { job_id })).body.approved).to.equal(false);
      await setCapacity(server, { total: 5 });
      const { body } = await requestLease(server, { job_id });
      expect(body.approved).to.equal(true);
      await release(server, body.lease.lease_id);
    });

    for (const body of ['{}', '', '{"total":null,"busy_rating":null}', '{"used":5}']) {
      it(`refuses to change the capacity by ${body || 'nothing'} with 400`, async () => {
        const answer = await setCapacity(server, body);
        expectError(answer, { status: 400, code: 'invalid_request', field: 'total' });
      });
    }

    const wrong: Record<string, unknown[]> = {
      total: [-1, 1.5, '70', true, [], {}, 1_000_000_001, 2 ** 53],
      busy_rating: [-1, 11, 0.5, '5', false, [5], {}],
    };
    for (const [field, values] of Object.entries(wrong)) {
      it(`refuses an invalid ${field} of the capacity by name`, async () => {
        for (const value of values) {
          const answer = await setCapacity(server, { total: 5, busy_rating: 5, [field]: value });
          expectError(answer, { status: 400, code: 'invalid_request', field });
        }
      });
    }

    it('answers POST and DELETE on the capacity with 405', async () => {
      for (const method of ['POST', 'DELETE', 'PATCH']) {
        const answer = await ask(server, capacityPath, { method });
        expectError(answer, { status: 405, code: 'method_not_allowed' });
        expect(answer.headers.get('allow')).to.equal('GET, HEAD, PUT');
      }
    });
  });

  describe('the capacity after a restart', () => {
    it("applies the settings' capacity until a client changes it, and then the stored one", async () => {
      await using store = await engine.open();
      const startedWith = (capacityTotal: number) =>
        engineOn(store.database, { ...engineSettings, capacityTotal }).capacity;
      expect((await startedWith(30).get(caller)).total).to.equal(30);
      expect((await startedWith(40).set({ busy_rating: 1 }, caller)).total).to.equal(40);
      await startedWith(40).set({ total: 45 }, caller);
      expect(await startedWith(50).get(caller)).to.include({ total: 45, busyRating: 1 });
    });
  });
});
