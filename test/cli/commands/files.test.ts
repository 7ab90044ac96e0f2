/** `leasehold files`, against a server of its own. */
import { expect } from 'chai';
import { stamp } from '../../../src/cli/support/output.ts';
import { apiOf, holders, letWaitingPass, Repository, take } from '../../support/coding-agents.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { runCommand, startProcess } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe('leasehold files', () => {
    let server: TestServer;
    let repository: Repository;
    before(async () => {
      server = await startTestServer(engine);
    });
    after(() => server.stop());
    beforeEach(async () => {
      repository = await Repository.create();
    });

    const run = (...args: string[]) =>
      runCommand(['files', ...args], { LEASEHOLD_URL: server.http }, { cwd: repository.top });

    /** Requests a file that another owner holds until it is halted; returns the contention. */
    async function halt(ownerId: string, path: string): Promise<string> {
      await take(server, ownerId, repository.top, path);
      await letWaitingPass(server, ownerId, 180_000);
      const answer = await take(server, ownerId, repository.top, path);
      if (answer.outcome !== 'halted') expect.fail(answer.outcome);
      return answer.blocker_report.contention_id;
    }

    it('reports that no owner holds a file', async () => {
      const { code, stdout, stderr } = await run('--repository', '.');
      expect({ code, stdout, stderr }).to.deep.equal({ code: 0, stdout: 'No file is leased.', stderr: '' });
    });

    it('lists holders with times, waiting owners with deadlines, and halted ones', async () => {
      await take(server, 'ann', repository.top, 'a', 'b');
      await take(server, 'bob', repository.top, 'a');
      const contention = await halt('cid', 'b');
      const [lease] = await apiOf(server).leases({ repository: repository.top });
      const { code, stdout, stderr } = await run('--repository', '.');
      expect([code, stderr]).to.deep.equal([0, '']);
      const [has = '', waits = '', halted = ''] = stdout.split('\n\n');
      expect(has).to.match(/^FILE +REPOSITORY +OWNER +SINCE +HEARTBEAT\n/);
      for (const path of ['a', 'b'])
        expect(has).to.match(new RegExp(`^${path} +${repository.top} +ann \\(test\\) +20`, 'm'));
      expect(has).to.include(stamp(lease?.acquired_at ?? ''));
      expect(waits).to.match(/^WAITS FOR +REPOSITORY +OWNER +RETRY +HELD BY +CONTENTION\n/);
      expect(waits).to.match(/^a +\S+ +bob +in (2 min \d+ s|3 min) +ann +[0-9a-f-]{36}$/m);
      expect(halted).to.include('b was denied twice').and.to.include(contention);
    });

    it('prints the list as JSON, for one repository and one owner', async () => {
      await take(server, 'ann', repository.top, 'a', 'b');
      await take(server, 'fay', repository.top, 'c', 'a');
      const all = JSON.parse((await run('--repository', repository.top, '--json')).stdout);
      expect(all.leases.map(({ path }: { path: string }) => path).sort()).to.deep.equal(['a', 'b']);
      expect(
        all.blockers.map(({ state, paths }: { state: string; paths: string[] }) => [state, paths]),
      ).to.deep.equal([['CONTENDED', ['a']]]);
      const none = JSON.parse((await run('--repository', 'no such', '--json')).stdout);
      expect(none).to.deep.equal({ leases: [], blockers: [] });
      const fays = JSON.parse((await run('--owner', 'fay', '--json')).stdout);
      expect([fays.leases, fays.blockers.length]).to.deep.equal([[], 1]);
      await apiOf(server).end('fay');
    });

    it('prints more than one page of files', async () => {
      const paths = Array.from({ length: 1_001 }, (_, i) => `many/${i}`);
      await take(server, 'many', repository.top, ...paths);
      const { leases } = JSON.parse((await run('--owner', 'many', '--json')).stdout);
      expect(new Set(leases.map(({ path }: { path: string }) => path)).size).to.equal(1_001);
      await apiOf(server).end('many');
    });

    it('keeps the table readable with a very long path and with many files of one waiter', async () => {
      const long = `deep/${'x'.repeat(3_000)}`;
      const paths = Array.from({ length: 500 }, (_, i) => `wide/${i}`);
      await take(server, 'gus', repository.top, long, ...paths);
      await take(server, 'hal', repository.top, ...paths);
      const { stdout } = await run('--repository', '.');
      const lines = stdout.split('\n');
      expect(lines.filter((line) => line.length > 400)).to.have.length(1);
      expect(lines.find((line) => line.startsWith(long))).to.match(/ gus \(test\) +20/);
      expect(stdout).to.match(/^wide\/0, wide\/1, wide\/10 and 497 more +\S+ +hal /m);
      await apiOf(server).end('hal');
      await apiOf(server).end('gus');
    });

    it('exits with 0 if its output is closed, after it has carried out the command', async () => {
      await take(server, 'ida', repository.top, 'a');
      const contention = await halt('jim', 'a');
      const unread = async (...args: string[]) => {
        const surroundings = { cwd: repository.top };
        const started = await startProcess(['files', ...args], { LEASEHOLD_URL: server.http }, surroundings);
        started.hangUp();
        const { code, signal, stderr } = await started.exited();
        return { code, signal, stderr };
      };
      const well = { code: 0, signal: null, stderr: '' };
      expect(await unread()).to.deep.equal(well);
      expect(await unread('--json')).to.deep.equal(well);
      expect(await unread('instruct', contention, 'RETRY')).to.deep.equal({ ...well, code: 75 });
      expect(await unread('instruct', contention, 'FORCE_RELEASE')).to.deep.equal(well);
      expect(await holders(server, repository.top)).to.deep.equal({ a: 'jim' });
    });

    it('sends an instruction, and prints its outcome', async () => {
      await take(server, 'ann', repository.top, 'a');
      const contention = await halt('dan', 'a');
      const retried = await run('instruct', contention, 'RETRY');
      expect(retried.code).to.equal(75);
      expect(retried.stdout).to.match(
        /^RETRY was applied, and it is still halted\nhalted: a was denied twice/,
      );
      const forced = await run(
        'instruct',
        contention,
        'force_release',
        '--reason',
        'urgent',
        '--requested-by',
        'op',
      );
      expect([forced.code, forced.stdout]).to.deep.equal([0, 'a belongs to dan now']);
      expect((await apiOf(server).heartbeat('ann')).lost_files[0]?.reason).to.include('op');
      const second = await halt('ann', 'a');
      const closed = await run('instruct', second, 'ABANDON', '--json');
      expect(JSON.parse(closed.stdout)).to.deep.equal({ outcome: 'abandoned', contention_id: second });
      const again = await run('instruct', second, 'RETRY');
      expect([again.code, again.stdout]).to.deep.equal([1, '']);
      expect(again.stderr).to.match(/^leasehold: the contention is over: [^\n]+ \(illegal_transition\)$/);
    });

    it('releases files of an owner, and names those that the owner does not hold', async () => {
      await take(server, 'eve', repository.top, 'a', 'b');
      const { code, stdout, stderr } = await run('release', 'a', 'c', '--owner', 'eve');
      expect([code, stdout, stderr]).to.deep.equal([1, 'a is free', 'leasehold: c is not held by eve']);
      expect(await holders(server, repository.top)).to.deep.equal({ b: 'eve' });
    });

    it('exits with 2 for usage errors, and with 1 if no server runs', async () => {
      for (const [args, says] of [
        [['frobnicate'], '"frobnicate"'],
        [['instruct'], 'names no contention'],
        [['instruct', 'x'], 'RETRY, ABANDON, FORCE_RELEASE'],
        [['instruct', 'x', 'SKIP'], 'RETRY, ABANDON, FORCE_RELEASE'],
        [['release', 'a'], '--owner'],
        [['release', '--owner', 'x'], 'names no file'],
      ] as const) {
        const { code, stdout, stderr } = await run(...args);
        expect([code, stdout], stderr).to.deep.equal([2, '']);
        expect(stderr).to.include(says).and.to.include('leasehold files --help');
      }
      const { code, stderr } = await run('--url', 'http://127.0.0.1:9');
      expect(code).to.equal(1);
      expect(stderr).to.match(/^leasehold: there is no server at http:\/\/127\.0\.0\.1:9: [^\n]+$/);
    });
  });
});
