/** `leasehold jobs retry`, against a server of its own. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import { type Body, eventsOf, read } from '../../support/jobs-api.ts';
import { runCommand } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { claimedFrom, enqueue, fail, newStream } from '../../support/worker-api.ts';

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe('leasehold jobs retry', () => {
    let server: TestServer;
    before(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 1_000_000 } });
    });
    after(() => server.stop());

    const run = (...args: string[]) => runCommand(['jobs', 'retry', ...args], { LEASEHOLD_URL: server.http });

    async function deadLetter(stream: string, code = 'E_INPUT'): Promise<string> {
      const { job_id } = await enqueue(server, stream);
      const claim = await claimedFrom(server, [stream]);
      await fail(server, claim, { error: { code, message: 'unreadable', retryable: false } });
      return job_id;
    }

    const stateOf = async (jobId: string) => (await read(server, jobId)).job.state;

    it('retries the named jobs, and records the actor and the reason', async () => {
      const stream = newStream();
      const [a, b] = [await deadLetter(stream), await deadLetter(stream)];
      const { code, stdout, stderr } = await run(a, b, '--reason', 'mended', '--requested-by', 'ann');
      expect({ code, stdout, stderr }).to.deep.equal({
        code: 0,
        stdout: `${a}\n${b}\n2 jobs retried`,
        stderr: '',
      });
      expect([await stateOf(a), await stateOf(b)]).to.deep.equal(['QUEUED', 'QUEUED']);
      const event = (await eventsOf(server, a)).at(-1) as Body;
      expect([event.type, event.data.by, event.data.reason]).to.deep.equal(['JOB_RETRIED', 'ann', 'mended']);
    });

    it('retries the jobs that it can, names the others, and exits with 1', async () => {
      const jobId = await deadLetter(newStream());
      const queued = (await enqueue(server, newStream())).job_id;
      const { code, stdout, stderr } = await run(queued, jobId, 'no-such-job', '--json');
      expect(code).to.equal(1);
      const { failed, ...rest } = JSON.parse(stdout);
      expect(rest).to.deep.equal({ retried: 1, job_ids: [jobId] });
      expect(failed.map((each: Body) => [each.job_id, each.code])).to.deep.equal([
        [queued, 'illegal_transition'],
        ['no-such-job', 'job_not_found'],
      ]);
      expect(stderr).to.include(queued).and.to.include('no-such-job');
    });

    it('retries dead letters by filter, up to the limit', async () => {
      const stream = newStream();
      const disk = await deadLetter(stream, 'E_DISK');
      const [first, second] = [await deadLetter(stream), await deadLetter(stream)];
      const byCode = await run('--dead-letters', '--stream', stream, '--error-code', 'E_DISK');
      expect(byCode.stdout).to.equal(`${disk}\n1 job retried`);
      expect((await run('--dead-letters', '--stream', stream, '--limit', '1')).stdout).to.include(first);
      const rest = await run('--dead-letters', '--stream', stream, '--json');
      expect(JSON.parse(rest.stdout)).to.deep.equal({ retried: 1, job_ids: [second], failed: [] });
      expect((await run('--dead-letters', '--stream', stream)).stdout).to.equal('0 jobs retried');
    });

    it('prints a usage error, and exits with 2', async () => {
      for (const [args, says] of [
        [[], 'names no job'],
        [['--dead-letters', 'x'], 'either'],
        [['x', '--stream', 's'], '--dead-letters'],
        [['--dead-letters', '--limit', 'many'], '--limit'],
        [['--frobnicate'], '--frobnicate'],
      ] as const) {
        const { code, stdout, stderr } = await run(...args);
        expect([code, stdout], stderr).to.deep.equal([2, '']);
        expect(stderr).to.include(says).and.to.include('leasehold jobs --help');
      }
      expect((await runCommand(['jobs', 'frobnicate'])).code).to.equal(2);
    });

    it('reports once that no server runs, and exits with 1', async () => {
      const { code, stdout, stderr } = await run('a', 'b', '--url', 'http://127.0.0.1:9/');
      expect([code, stdout]).to.deep.equal([1, '']);
      expect(stderr).to.match(/^leasehold: there is no server at http:\/\/127\.0\.0\.1:9: [^\n]+$/);
    });
  });
});
