import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { claim, expectError, newAddon, read, submit } from '../../support/jobs-api.ts';
import { between, heartbeat, plenty, readLease, requestLease } from '../../support/leases-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { beat, granted, request } from '../../support/system-api.ts';
import { WorkClient } from '../../support/work-streams.ts';
import { claimedFrom, claimFrom, enqueue, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  describe('the times of a grant', () => {
    let server: TestServer;
    let addonId: string;
    before(async () => {
      server = await startTestServer(engine, {
        settings: { capacityTotal: plenty, leaseTtlS: 60, heartbeatGraceS: 5 },
      });
    });
    after(() => server.stop());
    beforeEach(() => {
      addonId = newAddon();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));

    it("applies the request contract's TTL at the grant and at every heartbeat (C19)", async () => {
      await submit(server, { addon_id: addonId });
      const { body } = await request(server, { addon_id: addonId, ttl_sec: 7 });
      expect(between(body.lease.issued_at, body.lease.expires_at)).to.equal(12_000);
      expect(body.heartbeat_within_ms).to.equal(12_000);
      await beat(server, body.lease.lease_id);
      const { ttl_sec, last_heartbeat_at, expires_at } = await readLease(server, body.lease.lease_id);
      expect([ttl_sec, between(last_heartbeat_at, expires_at)]).to.deep.equal([7, 12_000]);
    });

    it('gives each of several concurrent callers its own TTL (C19)', async () => {
      for (let i = 0; i < 12; i++) await submit(server, { addon_id: addonId });
      const ttls = [5, undefined, 9, 5, undefined, 9, 5, undefined, 9, 5, undefined, 9];
      const answers = await Promise.all(
        ttls.map((ttl_sec, i) => granted(server, { worker_id: `w${i}`, addon_id: addonId, ttl_sec })),
      );
      const leases = await Promise.all(answers.map(({ lease }) => readLease(server, lease.lease_id)));
      expect(leases.map(({ ttl_sec }) => ttl_sec)).to.deep.equal(ttls.map((ttl) => ttl ?? 60));
      expect(new Set(leases.map(({ job_id }) => job_id)).size).to.equal(12);
    });

    it('refuses a TTL outside 1 to 3,600 seconds (C19)', async () => {
      for (const ttl_sec of [0, 3_601, 1.5, '60']) {
        expectError(await request(server, { ttl_sec }), {
          status: 400,
          code: 'invalid_request',
          field: 'ttl_sec',
        });
        const answer = await claimFrom(server, [newStream()], { lease_ttl_seconds: ttl_sec });
        expectError(answer, { status: 400, code: 'invalid_request', field: 'lease_ttl_seconds' });
      }
    });

    it("applies the worker contract's TTL under its own field name (C19)", async () => {
      const stream = newStream();
      await enqueue(server, stream);
      const claimed = await claimedFrom(server, [stream], { lease_ttl_seconds: 30 });
      expect(claimed).to.include({
        lease_ttl_seconds: 30,
        heartbeat_interval_seconds: 10,
        heartbeat_within_ms: 35_000,
      });
    });

    it('returns the heartbeat interval in whole seconds, whatever the TTL (S3)', async () => {
      for (const [ttl, interval] of [
        [1, 1],
        [2, 1],
        [3, 1],
        [8, 2],
        [3_600, 1_200],
      ]) {
        const stream = newStream();
        await enqueue(server, stream);
        const claimed = await claimedFrom(server, [stream], { lease_ttl_seconds: ttl });
        expect(claimed.heartbeat_interval_seconds).to.equal(interval);
      }
    });

    it('returns the time within which a heartbeat is due to the queue contract (C15)', async () => {
      const { job_id } = await submit(server, { addon_id: addonId, max_runtime_s: 20 });
      await claim(server, addonId);
      const { body } = await requestLease(server, { job_id, ttl_sec: 30 });
      // Neither the TTL nor the grace extends a lease beyond `max_runtime_s`.
      expect(body.heartbeat_within_ms).to.equal(20_000);
      expect((await heartbeat(server, body.lease.lease_id)).status).to.equal(200);
    });

    it('returns the remaining time for a replayed grant (C15)', async () => {
      await submit(server, { addon_id: addonId });
      const asked = { addon_id: addonId, request_id: `again-${addonId}` };
      const first = await request(server, asked);
      await server.database.query(
        "update live_jobs set expires_at = expires_at - interval '40 s' where lease_id = $1",
        [first.body.lease.lease_id],
      );
      const again = await request(server, asked);
      expect(again.body.lease.lease_id).to.equal(first.body.lease.lease_id);
      expect(first.body.heartbeat_within_ms).to.equal(65_000);
      expect(again.body.heartbeat_within_ms).to.be.within(10_000, 25_000);
    });

    it('gives a worker on a stream 10 s to confirm, and then the TTL of its credit (C15, C19)', async () => {
      const worker = new WorkClient(server.grpc);
      try {
        const { job_id } = await submit(server, { addon_id: addonId });
        worker.wants(1, { addonId, ttlSec: 25 });
        const [grant] = await worker.granted(1);
        expect(grant?.heartbeatWithinMs).to.equal(10_000n);
        expect(grant?.lease?.ttlSec).to.equal(25);
        worker.send({ heartbeats: [{ leaseId: grant?.lease?.leaseId ?? '' }] });
        const [verdict] = await worker.told(1);
        expect(verdict?.outcome.case).to.equal('extended');
        expect(verdict?.outcome.value).to.include({ ttlRemainingMs: 30_000n });
        expect((await read(server, job_id)).job.state).to.equal('RUNNING');
      } finally {
        worker.close();
      }
    });

    it('gives less than 10 s to confirm on a stream if the TTL is shorter (C15)', async () => {
      const worker = new WorkClient(server.grpc);
      try {
        await submit(server, { addon_id: addonId });
        worker.wants(1, { addonId, ttlSec: 1 });
        const [grant] = await worker.granted(1);
        expect(grant?.heartbeatWithinMs).to.equal(6_000n);
      } finally {
        worker.close();
      }
    });
  });
});
