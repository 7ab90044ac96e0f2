/**
 * Waiting and running jobs, the workers that ask for them, and why the oldest job waits: `GetQueue` and `GET
 * /api/scheduler/stats/queue`.
 */
import { expect } from 'chai';
import { queueCounts } from '../../../src/domain/queue/queue-group.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, get, jobsPath, newAddon, post, submit } from '../../support/jobs-api.ts';
import { leasedJob, setCapacity } from '../../support/leases-api.ts';
import { runCommand } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { request } from '../../support/system-api.ts';
import { WorkClient } from '../../support/work-streams.ts';
import { newStream } from '../../support/worker-api.ts';

const queuePath = '/api/scheduler/stats/queue';

onEveryEngine((engine) => {
  describe('the queue view', () => {
    let server: TestServer;
    beforeEach(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 100 } });
    });
    afterEach(async () => {
      expect(server.complaints.splice(0)).to.deep.equal([]);
      await server.stop();
    });

    const read = async (query = ''): Promise<Body> => {
      const { status, text, body } = await get(server, `${queuePath}${query}`);
      expect(status, text).to.equal(200);
      return body;
    };
    const group = async (job_type: string): Promise<Body> =>
      (await read('?limit=50')).groups.find((each: Body) => each.job_type === job_type);
    const older = (jobId: string, seconds: number) =>
      server.database.query(
        `update live_jobs set updated_at = updated_at - $2::int * interval '1 second',
          ready_at = ready_at - $2::int * interval '1 second' where job_id = $1`,
        [jobId, seconds],
      );

    it('returns no groups if no job waits', async () => {
      expect(await read()).to.deep.include({ groups: [], truncated: false, next_cursor: null });
    });

    it('names the oldest job of each group, its waiting time and the cause (B12)', async () => {
      const job_type = newAddon();
      const first = await submit(server, { job_type, constraints: { gpu_required: true }, priority: 'LOW' });
      await submit(server, { addon_id: first.addon_id, job_type, constraints: { gpu_required: true } });
      await older(first.job_id, 1_800);
      const found = await group(job_type);
      expect(found).to.deep.include({
        stream: null,
        addon_id: first.addon_id,
        requires: ['gpu'],
        ready: 2,
        delayed: 0,
        running: 0,
        workers: 0,
        slots: 0,
      });
      expect(found.oldest).to.deep.include({ job_id: first.job_id, priority: 'LOW', cost_units: 30 });
      expect(Date.now() - Date.parse(found.oldest.ready_since)).to.be.within(1_799_000, 1_860_000);
      expect(found.oldest.cause.code).to.equal('waiting_for_worker');
    });

    it('returns the same cause as explain', async () => {
      const job_type = newAddon();
      const { job_id } = await submit(server, { job_type, cost_units: 30 });
      await setCapacity(server, { total: 0 });
      const { cause } = (await group(job_type)).oldest;
      const explained = await get(server, `${jobsPath}/${job_id}/explain`);
      expect(cause.code).to.equal('costs_more_than_total');
      const [main] = explained.body.causes;
      expect(cause).to.deep.equal({ code: main.code, text: main.text });
    });

    it('names an unschedulable job if no job is ready, with the cause that explain returns', async () => {
      const job_type = newAddon();
      const { job_id, addon_id } = await submit(server, { job_type, cost_units: 500 });
      await older(job_id, 600);
      // The dispatcher marks the job as unschedulable when it tries to match it.
      const judged = await request(server, { accept_job_types: [job_type] });
      expect(judged.body.denied, judged.text).to.equal(true);
      const events = (await get(server, `${jobsPath}/${job_id}/events`)).body.events;
      expect(events.map(({ type }: Body) => type)).to.include('JOB_UNSCHEDULABLE');

      const found = await group(job_type);
      expect(found).to.deep.include({ ready: 0, delayed: 1, next_ready_at: null });
      expect(found.oldest).to.include({ job_id, priority: 'NORMAL', cost_units: 500 });
      expect(Date.now() - Date.parse(found.oldest.ready_since)).to.be.within(599_000, 660_000);
      const [main] = (await get(server, `${jobsPath}/${job_id}/explain`)).body.causes;
      expect(main.code).to.equal('costs_more_than_total');
      expect(found.oldest.cause).to.deep.equal({ code: main.code, text: main.text });
      const rpc = await post(server, '/leasehold.v1.StatsService/GetQueue', {});
      expect(rpc.body.groups[0].oldest).to.include({ jobId: job_id, causeCode: 'costs_more_than_total' });
      if (engine.name !== 'embedded') {
        const { stdout } = await runCommand(['queue'], { LEASEHOLD_URL: server.http });
        expect(stdout).to.match(new RegExp(`10 min(?: \\d+ s)? ago +costs_more_than_total +${job_id}$`));
      }

      const ready = await submit(server, { job_type, addon_id, cost_units: 1 });
      expect((await group(job_type)).oldest.job_id).to.equal(ready.job_id);
    });

    it('counts the workers that ask for a group, and the jobs that they would take', async () => {
      const stream = newStream();
      const job_type = newAddon();
      using one = new WorkClient(server.grpc, 'one');
      using two = new WorkClient(server.grpc, 'two');
      using other = new WorkClient(server.grpc, 'other');
      await setCapacity(server, { total: 0 });
      one.wants(3, { streams: [stream], constraintsCapabilities: { gpu_available: true } });
      two.wants(4, { streams: [stream], constraintsCapabilities: { gpu_available: true } });
      other.wants(5, { streams: [stream] });
      await submit(server, { job_type, stream, cost_units: 1, constraints: { gpu_required: true } });
      for (let looks = 0; (await group(job_type)).workers < 2 && looks < 500; looks++);
      expect(await group(job_type)).to.deep.include({ workers: 2, slots: 7 });
    });

    it('counts delayed, claimed and running jobs, and names no oldest job if none is ready', async () => {
      const job_type = newAddon();
      const addon_id = newAddon();
      const later = new Date(Date.now() + 3_600_000).toISOString();
      await submit(server, { job_type, addon_id, run_at: later });
      await leasedJob(server, { job_type, addon_id, cost_units: 1 });
      const found = await group(job_type);
      expect(found).to.deep.include({ ready: 0, delayed: 1, claimed: 0, running: 1, oldest: null });
      expect(Date.parse(found.next_ready_at)).to.be.within(Date.parse(later) - 1, Date.parse(later) + 1);
    });

    it('lists each group once over all pages of the queue view', async () => {
      const types = Array.from({ length: 7 }, () => newAddon());
      for (const job_type of types) await submit(server, { job_type });
      const seen: string[] = [];
      let cursor: string | null = '';
      do {
        const page: Body = await read(`?limit=3${cursor ? `&cursor=${cursor}` : ''}`);
        expect(page.groups.length).to.be.at.most(3);
        seen.push(...page.groups.map(({ job_type }: Body) => job_type));
        cursor = page.next_cursor;
      } while (cursor !== null);
      expect(seen).to.have.members(types);
    });

    it('returns the same queue view over RPC, and refuses invalid parameters', async () => {
      const { job_id, job_type } = await submit(server, { job_type: newAddon() });
      const { body } = await post(server, '/leasehold.v1.StatsService/GetQueue', { limit: 50 });
      const found = body.groups.find((each: Body) => each.jobType === job_type);
      expect(found.oldest).to.include({ jobId: job_id, causeCode: 'waiting_for_worker' });
      for (const [query, field] of [
        ['?limit=51', 'limit'],
        ['?cursor=x', 'cursor'],
      ])
        expect((await get(server, `${queuePath}${query}`)).body.field).to.equal(field);
    });

    it('reads a bounded number of rows among many jobs, and marks counts that are not complete', async () => {
      const { job_id } = await submit(server, { job_type: newAddon() });
      // A thousand at a time, because the embedded database serves nothing else during a statement.
      const copies = async (set: string, count: number) => {
        for (let first = 1; first <= count; first += 1_000) {
          await server.database.query(
            `insert into live_jobs select (jsonb_populate_record(live, jsonb_build_object(
              'job_id', gen_random_uuid(), 'seq', live.seq + n, ${set}))).*
            from live_jobs live, generate_series($2::int, $3::int) as n where live.job_id = $1`,
            [job_id, first, Math.min(count, first + 999)],
          );
        }
      };
      await copies("'priority', live.priority", 3 * queueCounts.ready);
      await copies("'check_at', now() + interval '1 hour'", queueCounts.due + 10);
      const { groups, truncated } = await read();
      expect(groups).to.have.length(1);
      expect(groups[0]).to.include({ ready: queueCounts.ready, delayed: queueCounts.due });
      expect(truncated).to.equal(true);
    });

    it('prints the queue view in commands, the longest wait first', async () => {
      if (engine.name === 'embedded') return;
      const run = (...args: string[]) => runCommand(args, { LEASEHOLD_URL: server.http });
      expect((await run('queue')).stdout).to.equal('Nothing waits or runs.');
      expect((await run('streams')).stdout).to.equal('No streams.');
      const young = await submit(server, { job_type: 'young', stream: 'films' });
      const old = await submit(server, { job_type: 'old\u001b[31m', constraints: { gpu_required: true } });
      await older(old.job_id, 600);
      const { code, stdout, stderr } = await run('queue');
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      const [heading, ...rows] = stdout.split('\n');
      expect(heading).to.match(
        /^TYPE +STREAM +NEEDS +ADDON +READY +DELAYED +CLAIMED +RUNNING +WORKERS +SLOTS +OLDEST +CAUSE +JOB$/,
      );
      expect(rows[0]).to.match(
        /^old \[31m +- +\+gpu +addon-\d+ +1 +0 +0 +0 +0 +0 +10 min(?: \d+ s)? ago +waiting_for_worker/,
      );
      expect(rows[0]).to.include(old.job_id);
      expect(rows[1])
        .to.match(/^young +films +- /)
        .and.to.include(young.job_id);
      const streams = await run('streams');
      expect(streams.stdout).to.match(/^STREAM +QUEUED +DELAYED +RUNNING +DEAD LETTERS\nfilms +1 +0 +0 +0$/);
      const oldest = JSON.parse((await run('jobs', 'list', '--oldest', '--json')).stdout);
      expect(oldest.jobs.map(({ job_id }: Body) => job_id)).to.deep.equal([young.job_id, old.job_id]);
    });
  });

  describe('the list of jobs, oldest first', () => {
    it('lists jobs in pages from the oldest on, unfinished and ended ones alike (B12)', async () => {
      await using server = await startTestServer(engine);
      const addon_id = newAddon();
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) ids.push((await submit(server, { addon_id })).job_id);
      await post(server, `${jobsPath}/${ids[1]}/cancel`, {});
      const seen: string[] = [];
      let cursor: string | null = '';
      do {
        const query: string = `oldest_first=true&limit=2&addon_id=${addon_id}${cursor && `&cursor=${cursor}`}`;
        const { body }: Body = await get(server, `${jobsPath}?${query}`);
        seen.push(...body.jobs.map(({ job_id }: Body) => job_id));
        cursor = body.next_cursor;
      } while (cursor !== null);
      expect(seen).to.deep.equal(ids);
      const rpc = await post(server, '/leasehold.v1.JobsService/ListJobs', {
        addonId: addon_id,
        oldestFirst: true,
      });
      expect(rpc.body.jobs.map(({ jobId }: Body) => jobId)).to.deep.equal(ids);
      const newest = await get(server, `${jobsPath}?addon_id=${addon_id}&oldest_first=false`);
      expect(newest.body.jobs.map(({ job_id }: Body) => job_id)).to.deep.equal([...ids].reverse());
    });
  });
});
