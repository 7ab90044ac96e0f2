import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  claim,
  expectError,
  jobsPath,
  newAddon,
  post,
  read,
  status,
  submit,
} from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: the filters of a claim', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const path = `${jobsPath}/claim`;
    const ask = (addonId: string, fields: object) =>
      post(server, path, { addon_id: addonId, worker_id: 'w', ...fields });

    it('claims only jobs of accept_job_types, in queue order', async () => {
      const addonId = newAddon();
      for (const job_type of ['a', 'b', 'c']) await submit(server, { addon_id: addonId, job_type });
      expect((await ask(addonId, { accept_job_types: ['d'] })).status).to.equal(204);
      const { body } = await ask(addonId, { accept_job_types: ['c', 'b', 'c'], limit: 9 });
      expect(body.jobs.map((job: { job_type: string }) => job.job_type)).to.deep.equal(['b', 'c']);
    });

    it('claims jobs of all types if accept_job_types is empty', async () => {
      const job = await submit(server, {});
      expect((await ask(job.addon_id, { accept_job_types: [] })).status).to.equal(200);
    });

    it('claims only jobs of at most max_cost_units', async () => {
      const addonId = newAddon();
      for (const cost_units of [41, 40, 1]) await submit(server, { addon_id: addonId, cost_units });
      expect((await ask(addonId, { max_cost_units: 0 })).status).to.equal(204);
      expect((await ask(addonId, { max_cost_units: 40 })).body.job.cost_units).to.equal(40);
      expect((await ask(addonId, { max_cost_units: 40 })).body.job.cost_units).to.equal(1);
      expect((await ask(addonId, { max_cost_units: 40 })).status).to.equal(204);
      expect((await ask(addonId, {})).body.job.cost_units).to.equal(41);
    });

    const needy = { constraints: { gpu_required: true } };
    const refusals: Record<string, object> = {
      'says nothing of its capabilities': {},
      'says null': { constraints_capabilities: null },
      'says nothing of that one': { constraints_capabilities: { network_available: true } },
      'says false': { constraints_capabilities: { gpu_available: false } },
      'says it in other words': { constraints_capabilities: { gpus_available: true, gpu_heavy: true } },
    };
    for (const [how, fields] of Object.entries(refusals)) {
      it(`claims no job that requires x if the worker ${how}`, async () => {
        const job = await submit(server, needy);
        expect((await ask(job.addon_id, fields)).status).to.equal(204);
      });
    }

    it('claims a job that requires x if x is available', async () => {
      const job = await submit(server, needy);
      const { body } = await ask(job.addon_id, { constraints_capabilities: { gpu_available: true } });
      expect(body.job.job_id).to.equal(job.job_id);
    });

    it('claims a job with several requirements only if all of them are available', async () => {
      const job = await submit(server, {
        constraints: { gpu_required: true, 'odd "{},\\ name_required': true, disk_required: false },
      });
      const one = { gpu_available: true };
      expect((await ask(job.addon_id, { constraints_capabilities: one })).status).to.equal(204);
      const both = { ...one, 'odd "{},\\ name_available': true };
      expect((await ask(job.addon_id, { constraints_capabilities: both })).status).to.equal(200);
    });

    for (const flag of ['cpu_heavy', 'network_heavy', 'disk_write_heavy']) {
      it(`claims no ${flag} job if the worker sends ${flag}: false`, async () => {
        const job = await submit(server, { constraints: { [flag]: true } });
        const no = { constraints_capabilities: { [flag]: false } };
        expect((await ask(job.addon_id, no)).status).to.equal(204);
        expect((await ask(job.addon_id, { constraints_capabilities: { [flag]: true } })).status).to.equal(
          200,
        );
      });

      it(`claims a ${flag} job if the worker omits the flag, and one with ${flag}: false always`, async () => {
        const heavy = await submit(server, { constraints: { [flag]: true } });
        expect((await ask(heavy.addon_id, {})).status).to.equal(200);
        const light = await submit(server, { constraints: { [flag]: false } });
        const no = { constraints_capabilities: { [flag]: false } };
        expect((await ask(light.addon_id, no)).status).to.equal(200);
      });
    }

    it('claims the next job that matches if those before it do not', async () => {
      const addonId = newAddon();
      await submit(server, { addon_id: addonId, priority: 'URGENT', ...needy });
      await submit(server, { addon_id: addonId, priority: 'HIGH', cost_units: 99 });
      const third = await submit(server, { addon_id: addonId, priority: 'LOW' });
      const { body } = await ask(addonId, { max_cost_units: 50, limit: 5 });
      expect(body.jobs.map((job: { job_id: string }) => job.job_id)).to.deep.equal([third.job_id]);
    });

    it('refuses a flag that is neither true nor false, and names it', async () => {
      const capability = await ask(newAddon(), { constraints_capabilities: { gpu_available: 'yes' } });
      const field = 'constraints_capabilities.gpu_available';
      expectError(capability, { status: 400, code: 'invalid_request', field });
      const job = { addon_id: newAddon(), job_type: 't', cost_units: 1, constraints: { gpu_required: 1 } };
      const constraint = await post(server, `${jobsPath}/submit`, job);
      expectError(constraint, { status: 400, code: 'invalid_request', field: 'constraints.gpu_required' });
    });

    it('returns the same jobs for the same request_id as long as the claim lives', async () => {
      const addonId = newAddon();
      for (const _ of [1, 2, 3]) await submit(server, { addon_id: addonId });
      const first = await ask(addonId, { request_id: 'r1', limit: 2 });
      const again = await ask(addonId, { request_id: 'r1', limit: 2 });
      expect(again.status).to.equal(200);
      expect(again.body).to.deep.equal(first.body);
      const other = await ask(addonId, { request_id: 'r2', limit: 2 });
      expect(other.body.jobs).to.have.length(1);
      expect(first.body.jobs.map((job: { job_id: string }) => job.job_id)).not.to.include(
        other.body.job.job_id,
      );
    });

    it('returns no job of another worker that sent the same request_id', async () => {
      const addonId = newAddon();
      for (const _ of [1, 2]) await submit(server, { addon_id: addonId });
      const mine = await claim(server, addonId, { worker_id: 'w1', request_id: 'shared' });
      const yours = await claim(server, addonId, { worker_id: 'w2', request_id: 'shared' });
      expect(yours.job_id).not.to.equal(mine.job_id);
    });

    it('returns one answer for many simultaneous claims with the same request_id', async () => {
      const addonId = newAddon();
      for (let n = 0; n < 10; n++) await submit(server, { addon_id: addonId });
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => ask(addonId, { request_id: 'at once', limit: 2 })),
      );
      for (const { body } of answers) expect(body).to.deep.equal(answers[0]?.body);
      expect((await ask(addonId, { limit: 20 })).body.jobs).to.have.length(8);
    });

    it('claims a fresh job for a request_id whose job was requeued', async () => {
      const { addon_id, job_id } = await submit(server, {});
      await claim(server, addon_id, { request_id: 'once' });
      await status(server, job_id, { state: 'QUEUED' });
      const again = await claim(server, addon_id, { request_id: 'once', worker_id: 'w2' });
      expect(again).to.include({ job_id, claimed_by: 'w2' });
      expect((await read(server, job_id)).job.claimed_by).to.equal('w2');
    });
  });
});
