/**
 * How an explanation describes a lease's heartbeats: their number, their interval, and the longest silence.
 */
import { createClient } from '@connectrpc/connect';
import { expect } from 'chai';
import { Explanation_StepKind } from '../../../gen/leasehold/v1/explain_pb.js';
import { StatsService } from '../../../gen/leasehold/v1/stats_pb.js';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import { letTimePass } from '../../support/jobs.ts';
import { type Body, get } from '../../support/jobs-api.ts';
import { between, heartbeat, leasedJob, plenty, release } from '../../support/leases-api.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { wires } from '../../support/wires.ts';

/** The time that a test may take beside the time that it lets pass. */
const slackMs = 10_000;
const ttlMs = 60_000;

onEveryEngine((engine) => {
  describe('explain for a lease with heartbeats', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => server.stop());

    const explained = async (what: string): Promise<Body> => {
      const { status, text, body } = await get(server, `/api/scheduler/${what}/explain`);
      expect(status, text).to.equal(200);
      return body;
    };
    const explainLease = (leaseId: string) => explained(`lease/${leaseId}`);
    const explainJob = (jobId: string) => explained(`jobs/${jobId}`);
    const beatAfter = async (leaseId: string, ms: number) => {
      await letTimePass(server.database, ms);
      expect((await heartbeat(server, leaseId)).status).to.equal(200);
    };
    const stepsOf = ({ steps }: Body, ofKind: string): Body[] =>
      steps.filter(({ kind }: Body) => kind === ofKind);
    const codesOf = ({ causes }: Body): string[] =>
      causes.map(({ code }: Body) => code).filter((code: string) => code !== 'server_away');

    /** A lease renewed three times, the second time late and over a stream. */
    const kept = async (job: object = {}) => {
      const leased = await leasedJob(server, job, { ttl_sec: ttlMs / 1000 });
      const { lease_id } = leased.lease;
      await beatAfter(lease_id, 5_000);
      await letTimePass(server.database, 46_000);
      const stream = new HeartbeatClient(server.grpc);
      stream.send(frame([{ leaseId: lease_id, workerId: 'worker-1' }]));
      await stream.hears(1);
      stream.end();
      await stream.ended;
      stream.close();
      await beatAfter(lease_id, 5_000);
      return leased;
    };
    /** The expected text as long as no silence was longer. */
    const expectKept = ([attempt]: Body[]) => {
      const { heartbeats, mean_heartbeat_interval_ms: every, longest_silence: longest } = attempt as Body;
      expect(heartbeats).to.equal(3);
      expect(every).to.be.within(56_000 / 3, (56_000 + slackMs) / 3);
      expect(longest.lasted_ms).to.be.within(46_000, 46_000 + slackMs);
      expect(longest.ttl_share).to.equal(longest.lasted_ms / ttlMs);
      expect(between(longest.since, longest.until)).to.equal(longest.lasted_ms);
      return longest;
    };

    it('counts the heartbeats and reports the longest silence while the job runs', async () => {
      const { lease, job } = await kept();
      const told = await explainLease(lease.lease_id);
      const longest = expectKept(told.attempts);
      expect(between(told.lease.granted_at, longest.since)).to.be.within(5_000, 5_000 + slackMs);
      expect(between(longest.until, told.lease.last_heartbeat_at)).to.be.within(5_000, 5_000 + slackMs);

      const [heartbeats] = stepsOf(told, 'HEARTBEATS');
      expect(heartbeats).to.include({
        ts: told.lease.granted_at,
        until: told.lease.last_heartbeat_at,
        by: 'worker-1',
        lease_id: lease.lease_id,
        times: 3,
      });
      expect(heartbeats?.text).to.match(/^heartbeats of worker-1, one every \d+ s on average$/);
      const [silence, ...more] = stepsOf(told, 'SILENCE');
      expect(more).to.deep.equal([]);
      expect(silence).to.include({ ts: longest.since, until: longest.until, lease_id: lease.lease_id });
      expect(silence?.text).to.match(
        /^no heartbeat of worker-1 for \d\d s after a heartbeat, \d\d % of its TTL$/,
      );

      expect(codesOf(told).filter((code) => code !== 'stream_closed')).to.deep.equal([
        'running',
        'long_silence',
      ]);
      const near = told.causes.find(({ code }: Body) => code === 'long_silence');
      expect(near).to.include({ since: longest.since, until: longest.until });
      expect(near.text).to.match(/^worker-1 was silent before, from \S+Z for \d\d s, \d\d % of its TTL$/);
      expect(near.facts).to.deep.equal({
        worker_id: 'worker-1',
        lasted_ms: longest.lasted_ms,
        ttl_share: longest.ttl_share,
        ttl_sec: 60,
      });
      expect((await explainJob(job.job_id)).attempts[0].longest_silence).to.deep.equal(longest);
      await release(server, lease.lease_id);
    });

    it('counts the current silence, and marks only that one as current', async () => {
      const { lease } = await kept();
      await letTimePass(server.database, 54_000);
      const told = await explainLease(lease.lease_id);
      const { longest_silence: longest } = told.attempts[0];
      expect(longest).to.include({ since: told.lease.last_heartbeat_at, until: told.ts });
      expect(longest.lasted_ms).to.be.within(54_000, 54_000 + slackMs);
      expect(stepsOf(told, 'SILENCE').map(({ text }) => text.replace(/\d+/g, 'n'))).to.deep.equal([
        'no heartbeat of worker-n for n s after its last heartbeat, n % of its TTL',
      ]);
      await release(server, lease.lease_id);
      const over = await explainLease(lease.lease_id);
      expect(over.attempts[0].longest_silence).to.include({
        since: over.lease.last_heartbeat_at,
        until: over.lease.ended_at,
      });
      expect(stepsOf(over, 'SILENCE')).to.have.length(1);
    });

    it('reports the same heartbeat figures after the job is done', async () => {
      const { lease, job } = await kept();
      const before = (await explainLease(lease.lease_id)).attempts[0];
      await release(server, lease.lease_id);
      const told = await explainJob(job.job_id);
      expect(expectKept(told.attempts)).to.deep.equal(before.longest_silence);
      expect(codesOf(told)).to.deep.equal(['done', 'released']);
      expect([stepsOf(told, 'HEARTBEATS').length, stepsOf(told, 'SILENCE').length]).to.deep.equal([1, 1]);
    });

    it('reports the earlier silences of an expired lease', async () => {
      const { lease, job } = await kept({ max_attempts: 2, retry_backoff_s: 600 });
      await letTimePass(server.database, 61_000);
      // A reader that comes before the reaper gets the same explanation.
      expectKept((await explainLease(lease.lease_id)).attempts);
      const told = await eventually('the lease has expired', async () => {
        const now = await explainLease(lease.lease_id);
        return now.lease.state === 'EXPIRED' ? now : undefined;
      });
      expectKept(told.attempts);
      expect(codesOf(told).filter((code) => code !== 'stream_closed')).to.deep.equal([
        'no_heartbeat_since',
        'long_silence',
      ]);
      expect(stepsOf(await explainJob(job.job_id), 'SILENCE').map(({ until }) => until)).to.deep.equal([
        told.attempts[0].longest_silence.until,
        told.lease.ended_at,
      ]);
    });

    it('reports that a lease had no heartbeats, and for how long', async () => {
      const { lease } = await leasedJob(server);
      await letTimePass(server.database, 45_000);
      await release(server, lease.lease_id);
      const told = await explainLease(lease.lease_id);
      const { heartbeats, mean_heartbeat_interval_ms, longest_silence } = told.attempts[0];
      expect([heartbeats, mean_heartbeat_interval_ms]).to.deep.equal([0, null]);
      expect(longest_silence).to.include({ since: told.lease.granted_at, until: told.lease.ended_at });
      expect(stepsOf(told, 'HEARTBEATS')).to.deep.equal([]);
      expect(stepsOf(told, 'SILENCE').map(({ text }) => text.replace(/\d+ [s%]/g, 'n'))).to.deep.equal([
        'no heartbeat of worker-1 for n after the grant, n of its TTL',
      ]);
    });

    it('reports the time of a single heartbeat', async () => {
      const { lease } = await leasedJob(server);
      await beatAfter(lease.lease_id, 5_000);
      const told = await explainLease(lease.lease_id);
      const [step, ...more] = stepsOf(told, 'HEARTBEATS');
      expect(more).to.deep.equal([]);
      expect(step).to.include({ ts: told.lease.last_heartbeat_at, until: null, times: 1 });
      expect(step?.text).to.equal('a heartbeat of worker-1');
      expect(codesOf(told)).to.deep.equal(['running']);
      await release(server, lease.lease_id);
    });

    it('reports a silence once, also if the middle of the history is omitted', async () => {
      const { lease, job } = await kept();
      await server.database.query(
        `insert into job_events (at, job_id, type, from_state, to_state, actor, data)
        select clock_timestamp(), $1, 5, 3, 3, 'worker-1', jsonb_build_object('reason', 'no ' || n) from generate_series(1, 1000) n`,
        [job.job_id],
      );
      await release(server, lease.lease_id);
      const told = await explainJob(job.job_id);
      expect(told.steps_left_out).to.be.above(800);
      expect([stepsOf(told, 'HEARTBEATS').length, stepsOf(told, 'SILENCE').length]).to.deep.equal([1, 1]);
    });

    for (const [wire, connect] of Object.entries(wires)) {
      it(`returns the same heartbeat figures over ${wire}`, async () => {
        const connection = connect(server);
        const stats = createClient(StatsService, connection.transport);
        const explain = async (leaseId: string) =>
          (await stats.explain({ subject: { case: 'leaseId', value: leaseId } })).explanation;
        const { lease } = await kept();
        const told = await explainLease(lease.lease_id);
        const longest = expectKept(told.attempts);
        const explanation = await explain(lease.lease_id);
        const [attempt] = explanation?.attempts ?? [];
        expect(attempt?.heartbeats).to.equal(3);
        expect(attempt?.meanHeartbeatIntervalMs).to.equal(
          BigInt(told.attempts[0].mean_heartbeat_interval_ms),
        );
        expect(attempt?.longestSilence).to.include({
          lastedMs: BigInt(longest.lasted_ms),
          ttlShare: longest.ttl_share,
        });
        const { since } = attempt?.longestSilence ?? {};
        expect(Number(since?.seconds) * 1000 + (since?.nanos ?? 0) / 1e6).to.equal(Date.parse(longest.since));
        const kinds = explanation?.steps.map(({ kind }) => kind);
        expect(kinds).to.include(Explanation_StepKind.HEARTBEATS);

        const { lease: another } = await leasedJob(server);
        const [unkept] = (await explain(another.lease_id))?.attempts ?? [];
        expect([unkept?.heartbeats, unkept?.meanHeartbeatIntervalMs]).to.deep.equal([0, undefined]);
        for (const { lease_id } of [lease, another]) await release(server, lease_id);
        connection.close();
      });
    }
  });
});
