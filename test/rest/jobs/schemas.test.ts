import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { claim, eventsOf, newAddon, read, retry, submit } from '../../support/jobs-api.ts';
import type { TestServer } from '../../support/server.ts';
import { shareServer } from '../../support/shared-server.ts';
import { beat, complete, fail, granted, readSystem } from '../../support/system-api.ts';

onEveryEngine((engine) => {
  describe('the schema of a job over REST', () => {
    const share = shareServer(engine, { capacityTotal: 1_000_000 });
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    after(() => share.leave());
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));

    it("uses the contract's state names in events as well (S2)", async () => {
      const addon_id = newAddon();
      const { job_id } = await submit(server, { addon_id });
      const { lease } = await granted(server, { addon_id });
      const movesOf = async () =>
        (await eventsOf(server, job_id)).map(({ type, data }) => [type, data.from, data.to]);
      expect((await movesOf()).at(-1)).to.deep.equal(['LEASE_GRANTED', 'QUEUED', 'RUNNING']);
      await beat(server, lease.lease_id);
      await complete(server, lease.lease_id);
      const moves = await movesOf();
      expect(moves.flat()).to.not.include('LEASED');
      expect(moves[2]).to.deep.equal(['JOB_RUNNING', 'RUNNING', 'RUNNING']);
    });

    it('shows no lease while a job waits for another attempt (D11)', async () => {
      const addon_id = newAddon();
      const { job_id } = await submit(server, { addon_id, max_attempts: 2, retry_backoff_s: 0 });
      const { lease, job } = await granted(server, { addon_id });
      expect(job.lease_id).to.equal(lease.lease_id);
      const failed = await fail(server, lease.lease_id, { error: { message: 'again', retryable: true } });
      expect([failed.body.requeued, failed.body.job.lease_id]).to.deep.equal([true, null]);
      expect((await read(server, job_id)).job).to.include({ state: 'QUEUED', lease_id: null, attempts: 1 });
      expect((await readSystem(server, job_id)).job.lease_id).to.equal(null);
      expect((await claim(server, addon_id)).lease_id).to.equal(null);
    });

    it('shows the last lease of an ended job, and none after a retry (D11)', async () => {
      const addon_id = newAddon();
      const { job_id } = await submit(server, { addon_id });
      const { lease } = await granted(server, { addon_id });
      await fail(server, lease.lease_id, {});
      expect((await read(server, job_id)).job).to.include({ state: 'FAILED', lease_id: lease.lease_id });
      expect((await retry(server, job_id)).body.job).to.include({ state: 'QUEUED', lease_id: null });
    });
  });
});
