/** The guarantee: a release is refused as too late only when its lease has ended in the database. */
import { expect } from 'chai';
import { silenceMs } from '../../../src/store/sql/outages.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { caller, submitted } from '../../support/jobs.ts';
import { acquired, codeOf, freshForEach, Holder, releaseFor } from '../../support/lease-helpers.ts';
import { eventually } from '../../support/server.ts';

onEveryEngine((kind) => {
  // The embedded database has one connection, so no transaction waits for another one.
  if (kind.name !== 'postgresql') return;

  describe('a release that waits for its row', () => {
    const stage = freshForEach(kind);

    it('ends the expired lease before it refuses, however long it waited', async () => {
      const { engine, store } = stage;
      await submitted(engine, { max_attempts: 1 });
      const grant = await acquired(engine);
      const holder = await Holder.holdJobs(store, [grant.job.jobId]);
      await holder.query("update live_jobs set expires_at = clock_timestamp() - interval '1 ms'");
      const release = codeOf(engine.leases.end(releaseFor(grant), caller));
      await holder.untilWaiting(1);
      // The waiting statement sees no later update of the pulse, which then no longer shows a live server.
      await eventually('the pulse is older than an outage', async () => {
        const outdated = await holder.query(
          "select from pulse where alive_at < clock_timestamp() - $1::float8 * interval '1 ms'",
          [silenceMs],
        );
        return outdated.length > 0 ? true : undefined;
      });
      await holder.letGo();
      expect(await release).to.equal('lease_not_active');
      const { lease, job } = await engine.leases.get(grant.lease.leaseId, caller);
      expect([lease.state, job.state]).to.deep.equal(['EXPIRED', 'TIMEOUT']);
    });
  });
});
