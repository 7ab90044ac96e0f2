import { expect } from 'chai';
import type { LeaseVerdict } from '../../../gen/leasehold/v1/leases_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import { type Body, cancel, get, jobsPath } from '../../support/jobs-api.ts';
import { leasedJob, nowhere, plenty, readLease, release } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';

const beat = ({ lease_id: leaseId }: Body, more: object = {}) => ({ leaseId, workerId: 'worker-1', ...more });

/** The verdicts by lease; of several for one lease the last. */
const byLease = (verdicts: readonly LeaseVerdict[]) =>
  Object.fromEntries(verdicts.map(({ leaseId, outcome }) => [leaseId, outcome]));

const msOf = (outcome: LeaseVerdict['outcome'] | undefined): number => {
  if (outcome?.case !== 'extended') return expect.fail(`not extended but ${outcome?.case}`);
  return Number(outcome.value.expiresAt?.seconds) * 1000 + (outcome.value.expiresAt?.nanos ?? 0) / 1e6;
};

onEveryEngine((engine) => {
  describe('LeasesService.StreamHeartbeats', () => {
    let server: TestServer;
    let stream: HeartbeatClient;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
    });
    after(() => server.stop());
    beforeEach(() => {
      stream = new HeartbeatClient(server.grpc);
    });
    afterEach(() => {
      stream.close();
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    const isCanceled = ({ lease_id }: Body): boolean => {
      const told = byLease(stream.verdicts)[lease_id];
      return told?.case === 'extended' && told.value.cancelRequested;
    };

    const leased = async (request: object = {}): Promise<Body> =>
      (await leasedJob(server, {}, request)).lease;

    it('extends every lease of a frame, and reports each that it cannot extend', async () => {
      const [a, b, c, released] = [await leased(), await leased(), await leased(), await leased()];
      expect((await release(server, released.lease_id)).status).to.equal(200);
      stream.send(
        frame([
          beat(a, { leaseToken: a.lease_token }),
          beat(b, { workerId: 'somebody-else' }),
          beat({ lease_id: nowhere }),
          beat(c, { leaseToken: nowhere }),
          beat(released),
          beat(c, { progress: 7 }),
        ]),
      );
      const verdicts = await stream.hears(6);
      const told = byLease(verdicts);
      expect(msOf(told[a.lease_id])).to.be.above(Date.parse(a.expires_at));
      const codes = verdicts
        .filter(({ leaseId }) => leaseId !== a.lease_id)
        .map(({ leaseId, outcome }) => [leaseId, outcome.case === 'lost' && outcome.value.code]);
      expect(codes).to.have.deep.members([
        [b.lease_id, 'worker_mismatch'],
        [nowhere, 'lease_not_found'],
        [c.lease_id, 'token_mismatch'],
        [released.lease_id, 'lease_not_active'],
        [c.lease_id, 'invalid_request'],
      ]);
      expect(Date.parse((await readLease(server, a.lease_id)).expires_at)).to.be.closeTo(
        msOf(told[a.lease_id]),
        1,
      );
      expect((await readLease(server, b.lease_id)).expires_at).to.equal(b.expires_at);
    });

    it('answers a repeated lease once per heartbeat, with the fields of each', async () => {
      const lease = await leased();
      const name = lease.lease_id.toUpperCase();
      const twice = frame([beat(lease), beat({ lease_id: name }, { progress: 0.25, message: 'a quarter' })]);
      stream.send(twice);
      stream.send(twice);
      const verdicts = await stream.hears(4);
      expect(verdicts.map(({ leaseId }) => leaseId).sort()).to.deep.equal(
        [name, name, lease.lease_id, lease.lease_id].sort(),
      );
      expect(verdicts.every(({ outcome }) => outcome.case === 'extended')).to.equal(true);
      const { body } = await get(server, `${jobsPath}/${lease.job_id}`);
      expect(body.job).to.include({ progress: 0.25, note: 'a quarter' });
    });

    it('answers all heartbeats in flight when the client ends its side, and releases nothing', async () => {
      const leases = [await leased(), await leased()];
      for (const lease of leases) stream.send(frame([beat(lease)]));
      stream.end();
      expect(await stream.ended).to.include({ code: 0 });
      expect(stream.verdicts).to.have.length(2);
      for (const { lease_id } of leases) expect((await readLease(server, lease_id)).state).to.equal('ACTIVE');
    });

    it('reports a cancellation as soon as a client requests it', async () => {
      const lease = await leased();
      stream.send(frame([beat(lease)]));
      await stream.hears(1);
      await cancel(server, lease.job_id);
      const [, told] = await stream.hears(2);
      expect(told?.leaseId).to.equal(lease.lease_id);
      expect(told?.outcome).to.deep.include({ case: 'extended' });
      expect(told?.outcome.value).to.include({ cancelRequested: true });
    });

    it('reports an expired lease on the stream that renewed it last', async () => {
      const lease = await leased({ ttl_sec: 1 });
      stream.send(frame([beat(lease)]));
      await stream.hears(1);
      const other = new HeartbeatClient(server.grpc);
      try {
        other.send(frame([beat(lease)]));
        const [, told] = await other.hears(2);
        expect(told?.outcome).to.deep.include({ case: 'lost' });
        expect(told?.outcome.value).to.include({ code: 'lease_not_active' });
        expect(stream.verdicts).to.have.length(1);
      } finally {
        other.close();
      }
    });

    it('drains when the server stops: notifies every lease, and ends at once', async () => {
      const stopping = await startTestServer(engine, { settings: { capacityTotal: plenty } });
      const draining = new HeartbeatClient(stopping.grpc);
      const { lease } = await leasedJob(stopping);
      draining.send(frame([beat(lease)]));
      await draining.hears(1);
      const since = performance.now();
      const stopped = stopping.stop();
      expect(await draining.ended).to.include({ code: 0 });
      draining.close();
      await stopped;
      expect(performance.now() - since).to.be.below(4_000);
      const [, told] = draining.verdicts;
      expect(told?.leaseId).to.equal(lease.lease_id);
      expect(told?.outcome.value).to.include({ drain: true });
      expect(stopping.complaints).to.deep.equal([]);
    });

    if (engine.name !== 'postgresql') return;

    it('reports a cancellation that a client requests on another server', async () => {
      await using other = await startTestServer(engine, { shared: server.store });
      // A server that has just started does not know yet that another server has subscribers for leases.
      await eventually('a cancellation is told of', async () => {
        const lease = await leased();
        stream.send(frame([beat(lease)]));
        await eventually('it is kept', async () => byLease(stream.verdicts)[lease.lease_id], 5_000);
        await cancel(other, lease.job_id);
        return eventually('it is told of', async () => isCanceled(lease) || undefined, 500).catch(
          () => undefined,
        );
      });
    });
  });
});
