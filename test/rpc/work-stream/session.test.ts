import { expect } from 'chai';
import { FinalStatus } from '../../../gen/leasehold/v1/jobs_pb.js';
import type { LeaseGrant, LeaseVerdict } from '../../../gen/leasehold/v1/leases_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, cancel, eventsOf, newAddon, post, read, submit } from '../../support/jobs-api.ts';
import { nowhere, plenty, readLease, setCapacity } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { doneWith, idOf, jobIdOf, WorkClient } from '../../support/work-streams.ts';

const outcomeOf = ({ outcome }: { outcome: { case: string | undefined; value?: object } }) => [
  outcome.case,
  outcome.case === 'refused' || outcome.case === 'lost'
    ? (outcome.value as { code: string }).code
    : undefined,
];

onEveryEngine((engine) => {
  describe('LeasesService.StreamWork', () => {
    let server: TestServer;
    let addonId: string;
    let worker: WorkClient;
    const clients: WorkClient[] = [];
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
    });
    after(() => server.stop());
    beforeEach(() => {
      addonId = newAddon();
      worker = connect();
    });
    afterEach(() => {
      for (const client of clients.splice(0)) client.close();
      expect(server.complaints.splice(0)).to.deep.equal([]);
    });

    const connect = (workerId?: string): WorkClient => {
      const client = new WorkClient(server.grpc, workerId);
      clients.push(client);
      return client;
    };

    const submitted = async (count: number, fields: object = {}): Promise<string[]> => {
      const ids: string[] = [];
      for (let i = 0; i < count; i++)
        ids.push((await submit(server, { addon_id: addonId, ...fields })).job_id);
      return ids;
    };

    const stateOf = async (jobId: string): Promise<Body> => (await read(server, jobId)).job;

    it('grants as many jobs as there is credit, in their order, and completes them', async () => {
      const ids = await submitted(5);
      worker.wants(3, { addonId });
      const grants = await worker.granted(3);
      expect(grants.map(jobIdOf)).to.deep.equal(ids.slice(0, 3));
      for (const grant of grants) expect(grant.lease).to.include({ workerId: 'w', attempt: 1 });
      worker.send({ releases: grants.map(doneWith) });
      const answers = await worker.answered(3);
      expect(answers.map(({ leaseId }) => leaseId)).to.deep.equal(grants.map(idOf));
      expect(answers.map(outcomeOf)).to.deep.equal([0, 1, 2].map(() => ['ended', undefined]));
      expect((await stateOf(ids[2] ?? '')).state).to.equal('DONE');
      expect((await stateOf(ids[3] ?? '')).state).to.equal('QUEUED');
      worker.wants(9, { addonId });
      expect((await worker.granted(5)).slice(3).map(jobIdOf)).to.deep.equal(ids.slice(3));
      const [late] = await submitted(1);
      expect((await worker.granted(6)).slice(5).map(jobIdOf)).to.deep.equal([late]);
      const types = (await eventsOf(server, ids[0] ?? '')).map(({ type }) => type);
      expect(types).to.deep.equal(['JOB_SUBMITTED', 'LEASE_GRANTED', 'LEASE_RELEASED', 'JOB_DONE']);
    });

    it('counts credit for each kind separately, and revokes it on request', async () => {
      worker.send({
        credits: [
          { jobs: 2, addonId, acceptJobTypes: ['a'] },
          { jobs: 1, addonId, streams: ['s'] },
        ],
      });
      const [a] = await submitted(1, { job_type: 'a' });
      const [s] = await submitted(1, { job_type: 'b', stream: 's' });
      await submitted(1, { job_type: 'b' });
      const grants = await worker.granted(2);
      expect(grants.map(jobIdOf)).to.have.members([a, s]);
      expect(grants.find((grant) => jobIdOf(grant) === s)?.streamMessage?.stream).to.equal('s');
      worker.wants(0, { addonId, acceptJobTypes: ['a'] });
      // The server answers what follows the credit after it has revoked the credit.
      worker.send({ releases: grants.map(doneWith) });
      await worker.answered(2);
      await submitted(2, { job_type: 'a' });
      worker.wants(1, { addonId, acceptJobTypes: ['b'] });
      await worker.granted(3);
      expect(worker.grants.map(({ job }) => job?.jobType)).to.have.members(['a', 'b', 'b']);
      worker.wants(3, { addonId, acceptJobTypes: ['a'] });
      await worker.granted(5);
    });

    it('answers an invalid release, writes nothing of it, and continues', async () => {
      const ids = await submitted(2);
      worker.wants(2, { addonId });
      const [first, second] = (await worker.granted(2)) as [LeaseGrant, LeaseGrant];
      const right = doneWith(first);
      worker.send({
        releases: [
          { ...right, leaseToken: nowhere },
          { ...right, workerId: 'another' },
          { ...right, status: FinalStatus.UNSPECIFIED },
          { ...right, jobId: ids[1] as string },
          { leaseId: nowhere, status: FinalStatus.SUCCEEDED },
          { leaseId: 'nothing like an id', status: FinalStatus.SUCCEEDED },
          { leaseId: idOf(second), leaseToken: 'x'.repeat(300), status: FinalStatus.SUCCEEDED },
        ],
      });
      expect((await worker.answered(7)).map(outcomeOf).sort()).to.deep.equal(
        [
          'token_mismatch',
          'worker_mismatch',
          'invalid_request',
          'job_mismatch',
          'lease_not_found',
          'lease_not_found',
          'invalid_request',
        ]
          .sort()
          .map((code) => ['refused', code]),
      );
      for (const id of ids) expect((await stateOf(id)).state).to.equal('RUNNING');
      worker.send({ releases: [right, right, { ...right, status: FinalStatus.FAILED }] });
      expect((await worker.answered(10)).slice(7).map(outcomeOf)).to.deep.equal([
        ['ended', undefined],
        ['ended', undefined],
        ['refused', 'lease_not_active'],
      ]);
    });

    it('stores the result of a released job, and allows another attempt', async () => {
      const [well, ill] = await submitted(2, { max_attempts: 2, retry_backoff_s: 0 });
      worker.wants(2, { addonId });
      const [first, second] = (await worker.granted(2)) as [LeaseGrant, LeaseGrant];
      const error = { message: 'no luck', code: 'LUCK', retryable: true };
      worker.send({
        releases: [
          {
            ...doneWith(first),
            resultData: { kind: { case: 'stringValue', value: 'result' } },
            metrics: { ms: 5 },
          },
          { ...doneWith(second), status: FinalStatus.FAILED, error },
        ],
      });
      const answers = await worker.answered(2);
      const requeued = answers.map(
        ({ outcome }) => outcome.case === 'ended' && [outcome.value.requeued, outcome.value.deadLettered],
      );
      expect(requeued).to.deep.equal([
        [false, false],
        [true, false],
      ]);
      expect((await read(server, well ?? '')).result).to.include({ result_data: 'result', attempts: 1 });
      expect(await stateOf(ill ?? '')).to.include({ state: 'QUEUED', attempts: 1 });
      worker.wants(1, { addonId });
      expect((await worker.granted(3))[2]?.lease).to.include({ jobId: ill, attempt: 2 });
    });

    it('gives an unconfirmed lease its full TTL at a first heartbeat without a worker id', async () => {
      await submitted(1);
      worker.wants(1, { addonId });
      const [grant] = (await worker.granted(1)) as [LeaseGrant];
      const short = Number(grant.lease?.expiresAt?.seconds) - Number(grant.lease?.grantedAt?.seconds);
      expect(short).to.be.within(9, 11);
      worker.send({ heartbeats: [{ leaseId: idOf(grant), progress: 0.5 }, { leaseId: nowhere }] });
      const verdicts: LeaseVerdict[] = await worker.told(2);
      const kept = verdicts.find(({ leaseId }) => leaseId === idOf(grant));
      expect(kept?.outcome.case).to.equal('extended');
      expect(Number(kept?.outcome.case === 'extended' && kept.outcome.value.ttlRemainingMs)).to.equal(60_000);
      expect(verdicts.map(outcomeOf)).to.deep.include(['lost', 'lease_not_found']);
      expect(await stateOf(jobIdOf(grant))).to.include({ state: 'RUNNING', progress: 0.5 });
    });

    it('reports a cancellation before the first heartbeat', async () => {
      await submitted(1);
      worker.wants(1, { addonId });
      const [grant] = (await worker.granted(1)) as [LeaseGrant];
      await cancel(server, jobIdOf(grant));
      const [verdict] = await worker.told(1);
      expect(verdict?.leaseId).to.equal(idOf(grant));
      expect(verdict?.outcome.case === 'extended' && verdict.outcome.value.cancelRequested).to.equal(true);
      worker.send({ releases: [doneWith(grant)] });
      await worker.answered(1);
      expect((await stateOf(jobIdOf(grant))).state).to.equal('CANCELED');
    });

    it('answers everything after the client ended its side, and revokes the remaining credit', async () => {
      await submitted(2);
      worker.wants(10, { addonId });
      const grants = await worker.granted(2);
      worker.send({ releases: grants.map(doneWith), heartbeats: [{ leaseId: nowhere }] });
      worker.call.end();
      expect(await worker.ended).to.include({ code: 0 });
      expect(worker.answers.map(outcomeOf)).to.deep.equal([
        ['ended', undefined],
        ['ended', undefined],
      ]);
      expect(worker.verdicts).to.have.length(1);
      const [left] = await submitted(1);
      const other = connect('other');
      other.wants(1, { addonId });
      expect((await other.granted(1)).map(jobIdOf)).to.deep.equal([left]);
    });

    const ends = async (client: WorkClient): Promise<string> => {
      const { code, details } = await client.ended;
      return `${code} ${details}`;
    };

    it('ends with the error of an invalid frame, after it has answered those before it', async () => {
      await submitted(1);
      worker.wants(1, { addonId });
      const grants = await worker.granted(1);
      worker.send({ releases: grants.map(doneWith) });
      worker.send({ workerId: 'somebody else' });
      expect(await ends(worker)).to.match(/^3 invalid_request: worker_id: /);
      expect(worker.answers.map(outcomeOf)).to.deep.equal([['ended', undefined]]);
      const nameless = connect('');
      nameless.wants(1);
      expect(await ends(nameless)).to.match(/^3 invalid_request: worker_id: /);
      for (const [credit, problem] of [
        [{ jobs: -1 }, 'credits[0].jobs'],
        [{ jobs: 10_001 }, 'credits[0].jobs'],
        [{ jobs: 1, streams: [' '] }, 'credits[0].streams[0]'],
        [{ jobs: 1, maxUnits: -1 }, 'credits[0].max_units'],
        [{ jobs: 1, acceptJobTypes: Array.from({ length: 501 }, (_, i) => `t${i}`) }, 'credits[0].accept'],
      ] as const) {
        const client = connect();
        client.send({ credits: [credit as object] });
        expect(await ends(client)).to.include(`3 invalid_request: ${problem}`);
      }
      const garbage = connect();
      garbage.call.write(Buffer.from([0x22, 0x7f, 0x01]));
      expect(await ends(garbage)).to.match(/^3 invalid_request: the frame cannot be read/);
      const greedy = connect();
      const kinds = Array.from({ length: 101 }, (_, i) => ({ jobs: 1, addonId: `${addonId} ${i}` }));
      greedy.send({ credits: kinds });
      expect(await ends(greedy)).to.match(/^3 invalid_request: credits: /);
      // A kind whose credit is used or revoked makes capacity for another kind.
      const modest = connect();
      modest.send({ credits: kinds.slice(0, 100) });
      modest.send({ credits: [{ ...kinds[0], jobs: 0 }] });
      modest.send({ heartbeats: [{ leaseId: nowhere }] });
      await modest.told(1);
      await submitted(1);
      modest.send({ credits: [{ jobs: 1, addonId }] });
      await modest.granted(1);
    });

    it('grants fairly to streams that ask for the same kind', async () => {
      const others = ['a', 'b', 'c', 'd'].map(connect);
      for (const other of others) {
        other.wants(1_000, { addonId });
        other.send({ heartbeats: [{ leaseId: nowhere }] });
        await other.told(1);
      }
      const jobs = Array.from({ length: 40 }, () => ({ addonId, jobType: 't', costUnits: 1 }));
      await post(server, '/leasehold.v1.JobsService/SubmitJobs', { jobs });
      const shares = await eventually('all are granted', async () => {
        const counts = others.map(({ grants }) => grants.length);
        return counts.reduce((sum, count) => sum + count) === 40 ? counts : undefined;
      });
      for (const share of shares) expect(share, `${shares}`).to.be.within(5, 15);
    });

    it('grants no more to a client that does not read, and continues with the others', async () => {
      const payload = { text: 'x'.repeat(200_000) };
      const ids = await submitted(120, { payload });
      const slow = connect('slow');
      slow.call.pause();
      slow.wants(10_000, { addonId });
      const running = async () => {
        const { body } = await post(server, '/leasehold.v1.JobsService/ListJobs', {
          addonId,
          states: ['JOB_STATE_RUNNING', 'JOB_STATE_LEASED'],
          limit: 200,
        });
        return body.jobs?.length ?? 0;
      };
      // One frame is in flight and one is ready; the session asks for nothing more.
      await eventually('the slow one has been granted something', async () => (await running()) || undefined);
      worker.wants(1, { addonId: newAddon() });
      const other = connect('quick');
      other.wants(1, { addonId: 'nothing' });
      const [own] = await submitted(1, { addon_id: `${addonId}-quick` });
      other.wants(1, { addonId: `${addonId}-quick` });
      expect((await other.granted(1)).map(jobIdOf)).to.deep.equal([own]);
      expect(await running()).to.be.below(ids.length);
      slow.call.resume();
      await slow.granted(ids.length);
      slow.send({ releases: slow.grants.map(doneWith) });
      await slow.answered(ids.length);
      expect(slow.answers.every(({ outcome }) => outcome.case === 'ended')).to.equal(true);
    });

    it('waits for capacity as it does for jobs', async () => {
      const own = await startTestServer(engine, { settings: { capacityTotal: 2 } });
      const client = new WorkClient(own.grpc);
      try {
        for (let i = 0; i < 3; i++) await submit(own, { addon_id: addonId, cost_units: 1 });
        client.wants(5);
        const grants = await client.granted(2);
        client.send({ releases: grants.slice(0, 1).map(doneWith) });
        await client.granted(3);
        await submit(own, { addon_id: addonId, cost_units: 1 });
        await setCapacity(own, { total: 3 });
        await client.granted(4);
      } finally {
        client.close();
        await own.stop();
      }
    });

    it('drains when the server stops: grants nothing more, notifies the client, and ends', async () => {
      const stopping = await startTestServer(engine, { settings: { capacityTotal: plenty } });
      const draining = new WorkClient(stopping.grpc);
      const idle = new WorkClient(stopping.grpc, 'idle');
      try {
        await submit(stopping, { addon_id: addonId });
        draining.wants(5);
        const [grant] = (await draining.granted(1)) as [LeaseGrant];
        idle.wants(1, { addonId: 'nothing' });
        await stopping.stop();
        expect(await draining.ended).to.include({ code: 0 });
        expect(draining.frames.at(-1)?.drain).to.equal(true);
        const told = draining.verdicts.find(({ leaseId }) => leaseId === idOf(grant))?.outcome;
        expect(told?.case === 'extended' && told.value.drain).to.equal(true);
        expect(await idle.ended).to.include({ code: 0 });
        expect(idle.frames.at(-1)?.drain).to.equal(true);
      } finally {
        draining.close();
        idle.close();
        await stopping.stop();
      }
    });

    it('releases nothing when the connection breaks, and applies the releases sent before', async () => {
      const ids = await submitted(2);
      worker.wants(2, { addonId });
      const [first, second] = (await worker.granted(2)) as [LeaseGrant, LeaseGrant];
      worker.send({ releases: [doneWith(first)] });
      await worker.answered(1);
      worker.close();
      expect((await stateOf(ids[0] ?? '')).state).to.equal('DONE');
      expect((await readLease(server, idOf(second))).state).to.equal('ACTIVE');
      const again = connect();
      again.send({ releases: [doneWith(second)] });
      expect((await again.answered(1)).map(outcomeOf)).to.deep.equal([['ended', undefined]]);
    });
  });
});
