/** The operator's commands that read and change jobs, leases and capacity, against a server of their own. */
import { expect } from 'chai';
import { capacityCommand } from '../../../src/cli/commands/capacity.ts';
import { explainCommand } from '../../../src/cli/commands/explain.ts';
import { jobsCommand } from '../../../src/cli/commands/jobs.ts';
import { leasesCommand } from '../../../src/cli/commands/leases.ts';
import { statsCommand } from '../../../src/cli/commands/stats.ts';
import type { Command } from '../../../src/cli/main.ts';
import { UsageError } from '../../../src/cli/support/args.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { letTimePass } from '../../support/jobs.ts';
import { type Body, cancel, newAddon, post, read, submit } from '../../support/jobs-api.ts';
import { capacityOf, heartbeat, leasedJob, release } from '../../support/leases-api.ts';
import { runCommand, startProcess, until } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const commands: Record<string, Command> = {
  jobs: jobsCommand,
  leases: leasesCommand,
  capacity: capacityCommand,
  explain: explainCommand,
  stats: statsCommand,
};

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe("the operator's commands", () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 1_000 } });
    });
    after(() => server.stop());

    const run = (...args: string[]) => runCommand(args, { LEASEHOLD_URL: server.http });
    const json = async (...args: string[]): Promise<Body> => {
      const { code, stdout, stderr } = await run(...args, '--json');
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout.split('\n')).to.have.length(1);
      return JSON.parse(stdout);
    };

    it('submits a job from flags and from the standard input', async () => {
      const addon = newAddon();
      const flags = ['--addon-id', addon, '--job-type', 'render', '--cost-units', '3', '--priority', 'high'];
      const more = ['--payload', '-', '--constraints', '{"gpu_required":true}', '--tags', 'a,b', '--unique'];
      const { code, stdout } = await runCommand(
        [
          'jobs',
          'submit',
          ...flags,
          ...more,
          '--max-attempts',
          '4',
          '--retry-backoff-s',
          '0',
          '--client-request-id',
          addon,
        ],
        { LEASEHOLD_URL: server.http },
        { input: '{"model":"sdxl"}' },
      );
      expect(code).to.equal(0);
      const { job } = await read(server, stdout);
      expect(job).to.deep.include({
        addon_id: addon,
        job_type: 'render',
        cost_units: 3,
        priority: 'HIGH',
        payload: { model: 'sdxl' },
        constraints: { gpu_required: true },
        tags: ['a', 'b'],
        unique: true,
        max_attempts: 4,
        retry_backoff_s: 0,
      });
      const again = await run('jobs', 'submit', ...flags, '--client-request-id', addon);
      expect([again.code, again.stdout]).to.deep.equal([1, '']);
      expect(again.stderr).to.match(/^leasehold: [^\n]+ \(duplicate_request\)$/);
      await cancel(server, job.job_id);
    });

    it('lists jobs by their filters, page by page', async () => {
      const addon_id = newAddon();
      const jobs: Body[] = [];
      for (let i = 0; i < 3; i++)
        jobs.push(await submit(server, { addon_id, stream: i === 0 ? 's' : undefined }));
      const newest = jobs.map(({ job_id }) => job_id).reverse();
      const first = await run('jobs', 'list', '--addon-id', addon_id, '--limit', '2');
      expect(first.code).to.equal(0);
      const [heading, ...rows] = first.stdout.split('\n');
      expect(heading).to.match(
        /^JOB +STATE +PRIORITY +UNITS +TYPE +ADDON +STREAM +ATTEMPTS +WORKER +SUBMITTED +CHANGED$/,
      );
      expect(rows.map((row) => row.split(' ')[0])).to.deep.equal(newest.slice(0, 2));
      expect(rows[0]).to.match(/ QUEUED +NORMAL +30 +load30 +addon-\d+ +- +0\/1 +- +20\S+ \S+ +\S+ \S+ ago$/);
      expect(first.stderr).to.equal(`there is more: --cursor ${newest[1]}`);
      const rest = await json('jobs', 'list', '--addon-id', addon_id, '--cursor', newest[1] ?? '');
      expect(rest.jobs.map(({ job_id }: Body) => job_id)).to.deep.equal(newest.slice(2));
      expect(rest.next_cursor).to.equal(null);
      const ofStream = await json(
        'jobs',
        'list',
        '--addon-id',
        addon_id,
        '--stream',
        's',
        '--all',
        '--state',
        'queued',
      );
      expect(ofStream.jobs.map(({ job_id }: Body) => job_id)).to.deep.equal(newest.slice(2));
      const none = await run('jobs', 'list', '--addon-id', addon_id, '--state', 'DONE,FAILED');
      expect(none.stdout).to.equal('No jobs.');
      const wrong = await run('jobs', 'list', '--state', 'lost');
      expect([wrong.code, wrong.stderr]).to.deep.equal([
        1,
        'leasehold: state: must be one of QUEUED, CLAIMED, PREPARING, LEASE_PENDING, RUNNING, DONE, FAILED, CANCELED, TIMEOUT, not "LOST" (invalid_request)',
      ]);
    });

    it('continues after the end of a page, however many pages there are', async () => {
      const addon_id = newAddon();
      const { body } = await post(server, '/leasehold.v1.JobsService/SubmitJobs', {
        jobs: Array.from({ length: 250 }, () => ({ addonId: addon_id, jobType: 't', costUnits: 1 })),
      });
      expect(body.outcomes).to.have.length(250);
      const { jobs } = await json('jobs', 'list', '--addon-id', addon_id, '--all');
      expect(new Set(jobs.map(({ job_id }: Body) => job_id)).size).to.equal(250);
    });

    it('shows a job with its result, its events and its leases', async () => {
      const { lease, job } = await leasedJob(server);
      const active = await json('leases', 'list', '--job-id', job.job_id);
      expect(active.leases).to.have.length(1);
      const { lease: told } = await json('leases', 'get', lease.lease_id);
      expect(active.leases[0]).to.deep.equal(told);
      await release(server, lease.lease_id, { result_data: { answer: 42 } });

      const got = await run('jobs', 'get', job.job_id);
      expect(got.stdout)
        .to.match(/^job_id +\S+$/m)
        .and.to.match(/^state +DONE$/m);
      expect(got.stdout)
        .to.match(/^finished_at +20\S+ \S+ \(\S+ \S+ ago\)$/m)
        .and.to.include('{"answer":42}');
      expect((await json('jobs', 'get', job.job_id)).result.result_data).to.deep.equal({ answer: 42 });
      const events = await run('jobs', 'events', job.job_id);
      expect(events.stdout).to.match(/^TIME +AGE +TYPE +BY +TO +LEASE +MORE$/m);
      expect(events.stdout).to.match(/LEASE_RELEASED +worker-1 +RUNNING +\S+ +status=SUCCEEDED/);
      expect((await run('leases', 'list', '--job-id', job.job_id)).stdout).to.equal('No leases.');
      const over = await run('leases', 'list', '--job-id', job.job_id, '--state', 'any');
      expect(over.stdout).to.match(
        /^LEASE +JOB +STATE +STATUS +WORKER +UNITS +ATTEMPT +FENCE +GRANTED +HEARTBEAT +ENDS\n/,
      );
      expect(over.stdout).to.match(
        new RegExp(`^${lease.lease_id} +${job.job_id} +RELEASED +SUCCEEDED +worker-1 +30 +1 `, 'm'),
      );
    });

    it('cancels jobs, and names those that it could not cancel', async () => {
      const job = await submit(server, {});
      const { code, stdout, stderr } = await run('jobs', 'cancel', job.job_id, 'no-such', '--reason', 'late');
      expect([code, stdout]).to.deep.equal([1, `${job.job_id}\n1 job canceled`]);
      expect(stderr).to.equal('leasehold: no-such: there is no job "no-such" (job_not_found)');
      expect((await read(server, job.job_id)).job.state).to.equal('CANCELED');
    });

    it('shows the capacity, and changes it', async () => {
      const { total, busy_rating } = await capacityOf(server);
      expect(await json('capacity')).to.deep.equal(await capacityOf(server));
      const changed = await run('capacity', 'set', '--total', '500', '--busy-rating', '5');
      expect(changed.stdout)
        .to.match(/^total +500$/m)
        .and.to.match(/^usable +250$/m);
      const back = await json(
        'capacity',
        'set',
        '--total',
        String(total),
        '--busy-rating',
        String(busy_rating),
      );
      expect(back).to.include({ total, busy_rating });
      const refused = await run('capacity', 'set', '--busy-rating', '11');
      expect([refused.code, refused.stderr.includes('busy_rating')]).to.deep.equal([1, true]);
    });

    it('explains a job and a lease, as text and as JSON', async () => {
      const { lease, job } = await leasedJob(server, { cost_units: 990 });
      const waiting = await submit(server, { cost_units: 20, stream: 'explained\u001b[31m' });
      const { code, stdout, stderr } = await run('explain', waiting.job_id);
      expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
      expect(stdout).to.match(/^Waiting: needs 20 units, 10 are free\n/);
      expect(stdout)
        .to.match(/^ {2}waiting_for_units +it needs 20 units, and 10 of 1000 are free/m)
        .and.to.match(/^ {2}needs_stream_worker +only/m);
      expect(stdout).to.match(/^What happened\n {2}20\S+ \S+ +\S+ \S+ ago +addon-\d+ submitted it$/m);
      expect(stdout).not.to.include('\u001b');
      const light = await submit(server, { cost_units: 1 });
      expect((await run('explain', light.job_id)).stdout).to.match(/^what .*, 1 unit$/m);
      const ofLease = await run('explain', lease.lease_id);
      expect(ofLease.stdout)
        .to.match(/^Active: no heartbeat of worker-1 since the grant/)
        .and.to.match(/^Attempts\n {2}NO +WORKER +FENCE/m);
      expect(ofLease.stdout).to.match(
        /^ {3}1 +worker-1 +\d+ +1 min +20.* ACTIVE +- +running +\S{36} +0 +[\d.]+ m?s, \d+ %$/m,
      );
      expect(ofLease.stdout).to.match(
        /^ {2}NO .* HEARTBEAT +ENDS +STATE +STATUS +WHY +LEASE +HEARTBEATS +LONGEST SILENCE$/m,
      );
      const told = await json('explain', job.job_id);
      expect(told.attempts[0]).to.include({ heartbeats: 0, mean_heartbeat_interval_ms: null });
      await letTimePass(server.database, 48_000);
      for (let i = 0; i < 2; i++) await heartbeat(server, lease.lease_id);
      const kept = await run('explain', lease.lease_id);
      expect(kept.stdout)
        .to.match(
          /^ {2}long_silence +worker-1 was silent before, from \S+ \S+ for \d+ s, \d\d % of its TTL$/m,
        )
        .and.to.match(/heartbeats of worker-1, one every \d+ s on average, 2 times until \S+ \S+$/m)
        .and.to.match(/no heartbeat of worker-1 for \d+ s after the grant, \d\d % of its TTL$/m)
        .and.to.match(/^ {3}1 .* \S{36} +2, one every \d+ s +\d+ s, \d\d %$/m);
      expect(told.causes.map((cause: Body) => cause.code)).to.deep.equal(['running']);
      const unknown = await run('explain', 'no-such');
      expect([unknown.code, unknown.stdout, unknown.stderr]).to.deep.equal([
        1,
        '',
        'leasehold: there is no job and no lease no-such (job_not_found)',
      ]);
      await release(server, lease.lease_id);
      await cancel(server, waiting.job_id);
    });

    it('exits with 0 if the output of a command is closed', async () => {
      const job = await submit(server, {});
      await server.database.query(
        `insert into job_events (at, job_id, type, actor, data)
        select clock_timestamp(), $1, 5, 'w', jsonb_build_object('reason', repeat('long ', 300)) from generate_series(1, 2000)`,
        [job.job_id],
      );
      const listing = await startProcess(['jobs', 'events', job.job_id, '--all'], {
        LEASEHOLD_URL: server.http,
      });
      await until('the first line', () => listing.stdout.length > 0 || listing.isOver);
      listing.hangUp();
      const { code, signal, stderr } = await listing.exited();
      expect({ code, signal, stderr }).to.deep.equal({ code: 0, signal: null, stderr: '' });
    });

    it('prints usage errors, and exits with 2', async () => {
      const mistakes: [string[], string][] = [
        [['jobs'], 'jobs needs a command: list, '],
        [['jobs', 'ls'], 'jobs has no command "ls"; its commands are list, '],
        [['jobs', 'get'], 'one job'],
        [['jobs', 'list', '--limit', 'x'], '--limit'],
        [['jobs', 'list', '--limit', '3', '--all'], '--all'],
        [['jobs', 'submit', '--addon-id', 'a'], '--job-type'],
        [
          ['jobs', 'submit', '--addon-id', 'a', '--job-type', 't', '--cost-units', '1', '--payload', '{'],
          '--payload',
        ],
        [['leases', 'list', '--state', 'lost'], '--state'],
        [['capacity', 'set'], '--total'],
        [['capacity', 'set', '--total', '-5'], '--total needs a value'],
        [['capacity', 'set', '--total=-5'], 'not "-5"'],
        [['capacity', 'set', '--frobnicate'], "Unknown option '--frobnicate'"],
        [['capacity', 'get'], '"get"'],
        [['explain'], 'one job or lease'],
        [['explain', 'a', 'b'], 'one job or lease'],
        [['stats', 'now'], '"now"'],
      ];
      for (const [[name = '', ...args], says] of mistakes) {
        const command = commands[name] ?? expect.fail(name);
        const failure: unknown = await command.run(args).then(
          () => undefined,
          (error: unknown) => error,
        );
        expect(failure, `${name} ${args.join(' ')}`).to.be.instanceOf(UsageError);
        expect((failure as UsageError).message).to.include(says);
      }
      for (const [command, says] of [
        [['files', 'ls'], 'files has no command "ls"; its commands are instruct, release'],
        [['hook', 'git', 'ls'], 'hook git has no command "ls"; its commands are install, uninstall'],
      ] as const) {
        const { code, stderr } = await run(...command);
        expect([code, stderr.split('\n')[0]]).to.deep.equal([2, `leasehold: ${says}`]);
      }
      const { code, stdout, stderr } = await run('capacity', 'get');
      expect([code, stdout]).to.deep.equal([2, '']);
      expect(stderr).to.match(
        /^leasehold: capacity has no command "get"; its commands are set, history\nSee 'leasehold capacity --help'\.$/,
      );
    });
  });
});
