/**
 * The guarantee: the statistics include every acknowledged write, even if its server was killed before it
 * aggregated.
 */
import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import { startServer } from '../support/process.ts';
import { connect, createStore } from '../support/server-clients.ts';

const jobs = 20;

describe('a server that is killed before it has aggregated statistics', () => {
  onEveryEngine((engine) => {
    it('leaves complete figures to the next server', async () => {
      await using store = await createStore(engine);
      const submitted = async () => {
        await using server = await startServer(store.env);
        using client = connect(server);
        for (let i = 0; i < jobs; i++)
          await client.jobs.submitJob({ addonId: 'a', jobType: 't', costUnits: 1 });
        await client.rest('POST', '/api/scheduler/jobs/claim', { worker_id: 'w' });
        const { body } = await client.rest('GET', '/api/scheduler/stats/snapshot');
        await server.kill();
        return body;
      };
      const before = await submitted();
      await using server = await startServer(store.env);
      using client = connect(server);
      const after = (await client.rest('GET', '/api/scheduler/stats/snapshot')).body;
      expect(after.jobs).to.deep.equal(before.jobs);
      expect(after.jobs).to.include({ queued: jobs - 1, claimed: 1, submitted_last_24h: jobs });
      expect(after.capacity).to.deep.equal(before.capacity);
      const path = '/api/scheduler/stats/timeseries?metric=jobs_submitted&bucket=1h&range=2h';
      const { points } = (await client.rest('GET', path)).body;
      const counted = points.reduce(
        (sum: number, { value }: { value: number | null }) => sum + (value ?? 0),
        0,
      );
      expect(counted).to.equal(jobs);
    });
  });
});
