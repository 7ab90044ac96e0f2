import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  cancel,
  claim,
  expectError,
  expectJobIntent,
  expectTime,
  jobsPath,
  newAddon,
  plainJob,
  post,
  read,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: claiming a job', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const path = `${jobsPath}/claim`;

    it("answers the contract's example of a claim with 200 and the claimed job", async () => {
      const submitted = await submit(server, { addon_id: 'visuals', constraints: { cpu_heavy: true } });
      const { status, body } = await post(
        server,
        path,
        `{
          "addon_id": "visuals",
          "worker_id": "visuals-worker-01",
          "limit": 1,
          "accept_job_types": ["load30", "render_image"],
          "max_cost_units": 40,
          "constraints_capabilities": { "gpu_available": false }
        }`,
      );
      expect(status).to.equal(200);
      expect(Object.keys(body)).to.deep.equal(['job']);
      const { claim_expires_at } = body.job;
      expectJobIntent(
        body.job,
        plainJob({
          addon_id: 'visuals',
          constraints: { cpu_heavy: true },
          state: 'CLAIMED',
          claimed_by: 'visuals-worker-01',
          claim_expires_at,
        }),
      );
      expect(body.job).to.include({ job_id: submitted.job_id, created_at: submitted.created_at });
      expectTime(claim_expires_at, { of: Date.parse(body.job.updated_at) + 60_000, withinMs: 2 });
      expect(await read(server, submitted.job_id)).to.deep.equal({ job: body.job, result: null });
    });

    it('answers 204 without a body if no job is available', async () => {
      const answer = await post(server, path, { addon_id: newAddon(), worker_id: 'worker-1', limit: 3 });
      expect(answer.status).to.equal(204);
      expect(answer.text).to.equal('');
    });

    it('never gives two of many concurrent workers the same job', async () => {
      const addonId = newAddon();
      const jobs = await Promise.all(Array.from({ length: 40 }, () => submit(server, { addon_id: addonId })));
      const answers = await Promise.all(
        Array.from({ length: 60 }, (_, i) => post(server, path, { addon_id: addonId, worker_id: `w${i}` })),
      );
      const claimed = answers.flatMap(({ body }) => body?.job ?? []);
      expect(claimed.map(({ job_id }) => job_id)).to.have.members(jobs.map(({ job_id }) => job_id));
      expect(new Set(claimed.map(({ claimed_by }) => claimed_by)).size).to.equal(40);
      expect(answers.filter(({ status }) => status === 204)).to.have.length(20);
    });

    it('claims jobs by priority, and the oldest first within a priority', async () => {
      const addonId = newAddon();
      const order = ['LOW', 'NORMAL', 'URGENT', 'HIGH', 'NORMAL', 'URGENT', 'LOW', 'HIGH'];
      for (const [n, priority] of order.entries()) {
        await submit(server, { addon_id: addonId, job_type: `type-${n % 3}`, priority, payload: { n } });
      }
      const told: number[] = [];
      for (const _ of order) told.push((await claim(server, addonId)).payload.n);
      expect(told).to.deep.equal([2, 5, 3, 7, 1, 4, 0, 6]);
    });

    it('returns the first job as job and all as jobs for a limit above 1', async () => {
      const addonId = newAddon();
      const jobs = [];
      for (let n = 0; n < 4; n++) jobs.push(await submit(server, { addon_id: addonId, payload: { n } }));
      const first = await post(server, path, { addon_id: addonId, worker_id: 'w', limit: 3 });
      expect(first.status).to.equal(200);
      expect(first.body).to.have.all.keys('job', 'jobs');
      expect(first.body.jobs.map(({ payload }: { payload: { n: number } }) => payload.n)).to.deep.equal([
        0, 1, 2,
      ]);
      expect(first.body.job).to.deep.equal(first.body.jobs[0]);
      const rest = await post(server, path, { addon_id: addonId, worker_id: 'w', limit: 3 });
      expect(rest.body.jobs).to.have.length(1);
      expect(rest.body.job.job_id).to.equal(jobs[3]?.job_id);
      expect((await post(server, path, { addon_id: addonId, worker_id: 'w', limit: 3 })).status).to.equal(
        204,
      );
    });

    it('claims jobs of every submitter if the request names none', async () => {
      await using other = await startTestServer(engine);
      for (const _ of [1, 2]) await submit(other, {});
      const { body } = await post(other, path, { worker_id: 'w', limit: 5, addon_id: null });
      expect(body.jobs).to.have.length(2);
    });

    it('treats null in optional fields of a claim as absent', async () => {
      const job = await submit(server, { priority: 'URGENT' });
      const { status, body } = await post(server, path, {
        addon_id: job.addon_id,
        worker_id: 'w',
        limit: null,
        accept_job_types: null,
        max_cost_units: null,
        constraints_capabilities: null,
        request_id: null,
        unknown: 'ignored',
      });
      expect(status).to.equal(200);
      expect(body.job.job_id).to.equal(job.job_id);
      expect(body).not.to.have.property('jobs');
    });

    it('refuses a claim without worker_id', async () => {
      const answer = await post(server, path, { addon_id: 'visuals' });
      expectError(answer, { status: 400, code: 'invalid_request', field: 'worker_id' });
    });

    it('claims no job of a stream, whatever the request asks for', async () => {
      const job = await submit(server, { stream: 'renders' });
      const answer = await post(server, path, {
        addon_id: job.addon_id,
        worker_id: 'w',
        stream: 'renders',
        streams: ['renders'],
      });
      expect(answer.status).to.equal(204);
    });

    it('claims no delayed job and no canceled job', async () => {
      const { addon_id, job_id } = await submit(server, { run_at: '2999-01-01T00:00:00Z' });
      const other = await submit(server, { addon_id });
      await cancel(server, other.job_id);
      expect((await post(server, path, { addon_id, worker_id: 'w' })).status).to.equal(204);
      expect((await read(server, job_id)).job.state).to.equal('QUEUED');
    });

    it('claims a delayed job once its time has come', async () => {
      const { addon_id, job_id, run_at } = await submit(server, {
        run_at: new Date(Date.now() + 700).toISOString(),
      });
      for (;;) {
        const { status, body } = await post(server, path, { addon_id, worker_id: 'w' });
        if (status === 204) continue;
        expect(body.job.job_id).to.equal(job_id);
        expect(Date.parse(body.job.updated_at)).to.be.at.least(Date.parse(run_at));
        break;
      }
    });
  });
});
