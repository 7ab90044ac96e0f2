import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { cancel, expectError, get, jobsPath, newAddon, post, submit } from '../../support/jobs-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the queue contract: a duplicate client_request_id', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());

    const path = `${jobsPath}/submit`;
    const keyed = (addonId: string, key = 'key') => ({
      addon_id: addonId,
      job_type: 'load30',
      cost_units: 1,
      client_request_id: key,
    });

    it("answers a duplicate client_request_id with 409 and the first job's id", async () => {
      const addonId = newAddon();
      const first = await submit(server, keyed(addonId));
      expect(first.client_request_id).to.equal('key');
      const again = await post(server, path, keyed(addonId));
      expectError(again, { status: 409, code: 'duplicate_request' });
      expect(again.body.job_id).to.equal(first.job_id);
    });

    it('refuses a duplicate with other fields too, and leaves the first job unchanged', async () => {
      const addonId = newAddon();
      const first = await submit(server, { ...keyed(addonId), payload: { version: 1 } });
      const again = await post(server, path, { ...keyed(addonId), cost_units: 9, payload: { version: 2 } });
      expect(again.status).to.equal(409);
      const { body } = await get(server, `${jobsPath}?addon_id=${addonId}`);
      expect(body.jobs).to.deep.equal([first]);
    });

    it('refuses a duplicate even after the first job has ended', async () => {
      const addonId = newAddon();
      const first = await submit(server, keyed(addonId));
      await cancel(server, first.job_id);
      const again = await post(server, path, keyed(addonId));
      expect(again.status).to.equal(409);
      expect(again.body.job_id).to.equal(first.job_id);
    });

    it('accepts the client_request_id of another submitter', async () => {
      await submit(server, keyed(newAddon()));
      expect((await post(server, path, keyed(newAddon()))).status).to.equal(201);
    });

    it('accepts keys that differ by case or blanks, and jobs without a key', async () => {
      const addonId = newAddon();
      for (const key of ['key', 'KEY', ' key', 'key ']) {
        expect((await post(server, path, keyed(addonId, key))).status).to.equal(201);
      }
      const unkeyed = { ...keyed(addonId), client_request_id: null };
      expect((await post(server, path, unkeyed)).status).to.equal(201);
      expect((await post(server, path, unkeyed)).status).to.equal(201);
    });

    it('creates one job for many duplicates at once, and answers the others with its id', async () => {
      const addonId = newAddon();
      const answers = await Promise.all(Array.from({ length: 20 }, () => post(server, path, keyed(addonId))));
      const made = answers.filter(({ status }) => status === 201);
      expect(made).to.have.length(1);
      const jobId = made[0]?.body.job.job_id;
      for (const { status, body } of answers.filter((answer) => answer !== made[0])) {
        expect(status).to.equal(409);
        expect(body).to.include({ code: 'duplicate_request', job_id: jobId });
      }
      const { body } = await get(server, `${jobsPath}?addon_id=${addonId}`);
      expect(body.jobs).to.have.length(1);
    });
  });
});
