/**
 * What `GET /api/system/doctor`, `Diagnose` and `leasehold doctor` report about the queue of a real server.
 */
import { expect } from 'chai';
import type { Finding } from '../../../src/domain/doctor/finding.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, cancel, get, post, submit } from '../../support/jobs-api.ts';
import { leasedJob, release, setCapacity } from '../../support/leases-api.ts';
import { runCommand } from '../../support/process.ts';
import { eventually, startTestServer, type TestServer } from '../../support/server.ts';
import { claimedFrom, enqueue, fail, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  describe('the queue checks of doctor', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const findings = async (): Promise<Finding[]> => {
      const { status, text, body } = await get(server, '/api/system/doctor');
      expect(status, text).to.equal(200);
      return body.findings.filter(({ area }: Finding) => area === 'queue');
    };
    const find = async (code: string): Promise<Finding> =>
      (await findings()).find((finding) => finding.code === code) ?? expect.fail(`no ${code}`);
    const readySince = (jobId: string, ms: number) =>
      server.database.query(
        "update live_jobs set ready_at = clock_timestamp() - $2::float8 * interval '1 ms' where job_id = $1",
        [jobId, ms],
      );

    it('reports no finding for an empty queue', async () => {
      for (const { level, text, advice } of await findings())
        expect([level, advice], text).to.deep.equal(['OK', null]);
      expect((await find('oldest_ready')).text).to.equal('no job is ready');
    });

    it('reports a problem when no unit is usable and a job is ready, on every interface (A4)', async () => {
      const job = await submit(server, {});
      await setCapacity(server, { busy_rating: 10 });
      const found = await find('usable_capacity');
      expect([found.level, found.facts]).to.deep.equal([
        'PROBLEM',
        { total: 100, busy_rating: 10, usable: 0, used: 0, jobs_wait: true },
      ]);
      expect(found.advice).to.include('--busy-rating 0');
      const { body } = await post(server, '/leasehold.v1.StatsService/Diagnose', {});
      const overRpc = body.diagnosis.findings.find(({ code }: Body) => code === 'usable_capacity');
      expect([overRpc.area, overRpc.level]).to.deep.equal(['queue', 'LEVEL_PROBLEM']);
      const { code, stdout } = await runCommand(['doctor'], { LEASEHOLD_URL: server.http });
      expect(code).to.equal(1);
      expect(stdout).to.match(/^PROBLEM +usable_capacity +no unit is usable with a total of 100 and a busy/m);
      expect((await find('oldest_ready')).facts).to.include({
        job_id: job.job_id,
        cause: 'waiting_for_units',
      });

      await setCapacity(server, { busy_rating: 0, total: 0 });
      expect((await find('usable_capacity')).advice).to.include('--total');
      await setCapacity(server, { total: 100 });
      expect((await find('usable_capacity')).level).to.equal('OK');
      await cancel(server, job.job_id);
    });

    it('names the job that has been ready for the longest time, with its type and cause (A4)', async () => {
      const job = await submit(server, { job_type: 'train' });
      const newer = await submit(server, { job_type: 'resize', priority: 'HIGH' });
      expect((await find('oldest_ready')).level).to.equal('OK');
      await readySince(job.job_id, 20 * 60_000);
      const found = await find('oldest_ready');
      expect([found.level, found.advice]).to.deep.equal(['WARN', `see 'leasehold explain ${job.job_id}'`]);
      expect(found.text).to.include(`${job.job_id} (train), ready for 20 min: no known worker asks for`);
      expect(found.facts).to.include({ job_type: 'train', stream: null, cause: 'waiting_for_worker' });
      for (const { job_id } of [job, newer]) await cancel(server, job_id);
    });

    it('names types and capabilities that no worker asks for (A4)', async () => {
      const job = await submit(server, { job_type: 'train', constraints: { gpu_required: true } });
      const kinds = async (code: string) =>
        (await find(code)).facts.kinds as { job_type: string; oldest_job_id: string; requires: string[] }[];
      // Workers come and go: a job that became ready a moment ago is not reported.
      expect(await kinds('types_without_worker')).to.deep.equal([]);
      await readySince(job.job_id, 60_000);
      const missing = await find('types_without_worker');
      expect([missing.level, missing.text]).to.deep.equal([
        'WARN',
        'jobs are ready that no known worker asks for: train, ready for 1 min',
      ]);
      expect((await kinds('types_without_worker'))[0]).to.include({ oldest_job_id: job.job_id });

      const ask = (workerId: string, more = {}) =>
        post(server, '/leasehold.v1.LeasesService/AcquireLease', {
          workerId,
          acceptJobTypes: ['train'],
          ...more,
        });
      await ask('without-gpu');
      const incapable = await eventually('the worker is known', async () => {
        const found = await find('capability_without_worker');
        return found.level === 'WARN' ? found : undefined;
      });
      expect(incapable.text).to.include('train needs gpu_available: true');
      expect(await kinds('types_without_worker')).to.deep.equal([]);

      await ask('with-gpu', { constraintsCapabilities: { gpu_available: true }, maxUnits: 1 });
      await ask('with-gpu-2', { constraintsCapabilities: { gpu_available: true }, addonId: 'another' });
      expect((await find('capability_without_worker')).level).to.equal('WARN');
      await server.database.query(
        `update workers set asks = jsonb_set(asks, '{0,available}', '["gpu"]') where worker_id = 'without-gpu'`,
        [],
      );
      expect((await find('capability_without_worker')).level).to.equal('OK');
      await cancel(server, job.job_id);
    });

    it('counts jobs above the total cost, before and after they are unschedulable (A4)', async () => {
      const job = await submit(server, { cost_units: 101 });
      const before = await find('costs_more_than_total');
      expect([before.level, before.facts.jobs]).to.deep.equal(['WARN', 1]);
      await post(server, '/api/system/scheduler/leases/request', { worker_id: 'w', max_units: 1_000 });
      const after = await find('costs_more_than_total');
      expect(after.facts).to.include({ jobs: 1, first_job_id: job.job_id, total: 100 });
      expect(after.text).to.include('1 job costs more than the total of 100 units');
      await cancel(server, job.job_id);
      expect((await find('costs_more_than_total')).level).to.equal('OK');
    });

    it('counts dead letters by stream until an operator retries them (A4)', async () => {
      const streams = [newStream(), newStream()];
      for (const stream of [...streams, streams[0] ?? '']) {
        await enqueue(server, stream, { max_attempts: 1 });
        await fail(server, await claimedFrom(server, [stream]));
      }
      const found = await find('dead_letters');
      expect([found.level, found.facts]).to.deep.equal([
        'WARN',
        {
          jobs: 3,
          streams: [
            { stream: streams[0], jobs: 2 },
            { stream: streams[1], jobs: 1 },
          ],
        },
      ]);
      expect(found.text).to.equal(`streams gave up 3 jobs: 2 in ${streams[0]}, 1 in ${streams[1]}`);
      await post(server, '/api/scheduler/jobs/retry', {});
      expect((await find('dead_letters')).level).to.equal('OK');
      const { jobs } = (await get(server, '/api/scheduler/jobs?state=QUEUED')).body;
      for (const { job_id } of jobs) await cancel(server, job_id);
    });

    it('names unexpired leases without a heartbeat for three quarters of their TTL (A4)', async () => {
      const { lease, job } = await leasedJob(server, {}, { ttl_sec: 600 });
      const silent = (seconds: number) =>
        server.database.query(
          `update live_jobs set started_at = clock_timestamp() - $2::int * interval '1 second',
            last_heartbeat_at = clock_timestamp() - $2::int * interval '1 second', expires_at = clock_timestamp() + (600 - $2::int) * interval '1 second',
            check_at = clock_timestamp() + (600 - $2::int) * interval '1 second' where job_id = $1`,
          [job.job_id, seconds],
        );
      await silent(440);
      expect((await find('silent_leases')).level).to.equal('OK');
      await silent(460);
      const found = await find('silent_leases');
      expect([found.level, found.facts.leases]).to.deep.equal(['WARN', 1]);
      expect(found.text).to.match(
        /^1 lease has been silent for ¾ of the TTL; .* silent for 7 min 4\d s of 10 min$/,
      );
      expect(found.advice).to.include(`leasehold explain ${lease.lease_id}`);
      await release(server, lease.lease_id, { job_id: job.job_id });
      expect((await find('silent_leases')).level).to.equal('OK');
    });
  });
});
