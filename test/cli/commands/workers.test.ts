/** The command that lists workers. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { post } from '../../support/jobs-api.ts';
import { runCommand } from '../../support/process.ts';
import { eventually, startTestServer } from '../../support/server.ts';
import { WorkClient } from '../../support/work-streams.ts';

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe('leasehold workers', () => {
    it('lists workers in a table and as JSON, in pages (B11, B12)', async () => {
      await using server = await startTestServer(engine);
      const run = (...args: string[]) => runCommand(['workers', ...args], { LEASEHOLD_URL: server.http });
      expect((await run()).stdout).to.equal('No workers.');
      using worker = new WorkClient(server.grpc, 'render-1');
      worker.wants(4, {
        streams: ['films'],
        acceptJobTypes: ['cut', 'render'],
        constraintsCapabilities: { gpu_available: true, cpu_heavy: false },
        maxUnits: 8,
      });
      await post(server, '/api/scheduler/jobs/claim', { worker_id: 'evil\u001b[31m', limit: 1 });
      const listed = await eventually('both', async () => {
        const { stdout } = await run('--json');
        const answer = JSON.parse(stdout);
        return answer.workers.length === 2 ? answer : undefined;
      });
      expect(listed.next_cursor).to.equal(null);
      const { code, stdout, stderr } = await run();
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).not.to.include('\u001b');
      expect(stdout).to.match(
        /^WORKER +LEASES +CLAIMS +SLOTS +LAST CALL +CONNECTION +ASKS FOR +SERVER +PEER +SINCE$/m,
      );
      expect(stdout).to.match(
        /^evil \[31m +0 +0 +0 +\S+ \S+ ago +polling +any type +\S+\/\d+ +\S+ +\S+ \S+ ago$/m,
      );
      expect(stdout).to.match(
        /^render-1 +0 +0 +4 +\S+ \S+ ago +work +stream films: cut,render \+gpu -cpu up to 8 units +\S+/m,
      );
      const one = await run('--limit', '1');
      expect(one.stderr).to.match(/^there is more: --cursor evil/);
      expect((await run('--stream', 'films')).stdout).to.not.include('evil');
    });
  });
});
