/** The output of commands on a real terminal: its colours, and its lines at several widths. */
import { expect } from 'chai';
import { columnsOf } from '../../src/lib/terminal-layout.ts';
import { onEveryEngine } from '../support/engines.ts';
import { newAddon, submit } from '../support/jobs-api.ts';
import { leasedJob } from '../support/leases-api.ts';
import { describeWith } from '../support/programs.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { runOnTerminal } from '../support/terminal.ts';

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describeWith('python', 'leasehold on a terminal', () => {
    let server: TestServer;
    let jobId: string;
    let leaseId: string;
    before(async () => {
      server = await startTestServer(engine);
      const { lease } = await leasedJob(server, { cost_units: 80 });
      leaseId = lease.lease_id;
      const job = await submit(server, {
        addon_id: `${newAddon()}-with-a-rather-long-name`,
        job_type: 'render_frame_of_a_film',
        stream: 'video.transcode.high-priority',
        constraints: { gpu_required: true },
      });
      jobId = job.job_id;
    });
    after(() => server.stop());

    const run = (columns: number, args: readonly string[], environment = {}) =>
      runOnTerminal(columns, args, { LEASEHOLD_URL: server.http, ...environment });

    it('prints no line that is wider than the terminal, and every id in full', async () => {
      for (const [columns, ...args] of [
        [60, 'jobs', 'list'],
        [100, 'jobs', 'list'],
        [60, 'jobs', 'get', jobId],
        [60, 'jobs', 'events', jobId],
        [60, 'leases', 'list'],
        [60, 'explain', jobId],
        [80, 'explain', leaseId],
        [60, 'queue'],
        [60, 'workers'],
        [60, 'streams'],
        [80, 'stats'],
        [80, 'doctor'],
      ] as const) {
        const lines = await run(columns, args);
        for (const line of lines)
          expect(columnsOf(line), `${args.join(' ')} at ${columns}:\n${line}`).to.be.at.most(columns);
        if (args[1] === 'list') expect(lines.join('\n')).to.include(args[0] === 'jobs' ? jobId : leaseId);
      }
    }).timeout(60_000);

    it('colours headings and states, unless NO_COLOR or --color=never is set', async () => {
      const [heading = '', first = ''] = await run(100, ['jobs', 'list']);
      expect(heading).to.include('\u001b[1mJOB\u001b[0m');
      expect(first).to.include(`${jobId}  \u001b[33mQUEUED\u001b[0m`);
      for (const [args, environment] of [
        [['jobs', 'list'], { NO_COLOR: '1' }],
        [['jobs', 'list', '--color=never'], {}],
        [['jobs', 'list', '--json'], {}],
      ] as const)
        expect((await run(100, args, environment)).join('\n')).not.to.include('\u001b');
    });

    it('answers first in one sentence when it explains a job', async () => {
      const [answer = ''] = await run(100, ['explain', jobId, '--color=never']);
      expect(answer).to.equal('Waiting: needs 30 units, 20 are free');
    });
  });
});
