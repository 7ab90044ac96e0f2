/** `leasehold guard`: real guards as processes, and real servers. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { isAlive, lookUp, type ProcessFacts } from '../../../src/agent/process-tree.ts';
import { forgetProcess, watchProcess } from '../../support/cleanup.ts';
import { apiOf, holders, letWaitingPass, Repository, take } from '../../support/coding-agents.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { type LeaseholdProcess, main, runCommand, startProcess, until } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const nowhere = 'http://127.0.0.1:9';

onEveryEngine((engine) => {
  describe('leasehold guard', () => {
    let server: TestServer;
    let repository: Repository;
    before(async () => {
      server = await startTestServer(engine);
      repository = await Repository.create();
    });
    after(() => server.stop());

    const start = (...args: string[]) =>
      startProcess(['guard', ...args], { LEASEHOLD_URL: server.http }, { cwd: repository.top });
    const run = async (...args: string[]) => (await start(...args)).exited();
    /** A command that prints when it runs, and then waits for a signal. */
    const waits = ['sh', '-c', 'echo started $$; exec sleep 600'];
    /** Two processes that ignore the request to end; each prints that it runs. */
    const stubborn = [
      'sh',
      '-c',
      'sh -c \'trap "" TERM; echo child $$; sleep 600 & wait; sleep 600\' & trap "" TERM; sleep 0.3; echo started $$; wait; sleep 600',
    ];
    async function started(guard: LeaseholdProcess): Promise<ProcessFacts> {
      await until('the command', () => guard.isOver || guard.stdout.length > 0);
      const pid = Number(guard.stdout[0]?.split(' ')[1]);
      return lookUp(pid) ?? expect.fail(`the command does not run; the guard said: ${guard.said()}`);
    }
    const held = () => holders(server, repository.top);

    it('holds the files while the command runs, releases them, and prints nothing', async () => {
      const show = ['sh', '-c', 'echo "$LEASEHOLD_OWNER"; cat; exec sleep 600'];
      const guard = await startProcess(
        ['guard', 'a', 'new/b', '--', ...show],
        { LEASEHOLD_URL: server.http },
        { cwd: repository.top, input: 'what it was given\n' },
      );
      await until('the command', () => guard.stdout.length === 2);
      const [owner = '', given] = guard.stdout;
      expect(owner).to.match(new RegExp(`^guard-${hostname()}-${guard.pid}-[0-9a-f]{8}$`));
      expect(given).to.equal('what it was given');
      expect(await held()).to.deep.equal({ a: owner, 'new/b': owner });
      const [lease] = await apiOf(server).leases({ owner_id: owner });
      expect(lease?.owner).to.deep.include({ agent: 'sh', host: hostname(), pid: guard.pid, branch: 'main' });
      guard.signal('SIGTERM');
      const { code, stderr } = await guard.exited();
      expect([code, stderr]).to.deep.equal([143, '']);
      expect(await held()).to.deep.equal({});
      const again = await apiOf(server)
        .heartbeat(owner)
        .catch((error: Error) => error.message);
      expect(again).to.match(/ended/);
    });

    it("exits with the command's status", async () => {
      const exits = await Promise.all([
        run('c1', '--', 'true'),
        run('c2', '--', 'sh', '-c', 'exit 42'),
        run('c3', '--', 'sh', '-c', 'kill -KILL $$'),
        run('c4', '--', 'no-such-command-anywhere'),
        run('c5', '--', '/dev/null'),
      ]);
      expect(exits.map(({ code }) => code)).to.deep.equal([0, 42, 137, 127, 126]);
      expect(exits.slice(0, 3).map(({ stdout, stderr }) => stdout + stderr)).to.deep.equal(['', '', '']);
      expect(exits[3]?.stderr).to.match(/^leasehold: .*no-such-command-anywhere: not found$/);
      expect(await held()).to.deep.equal({});
    });

    it('forwards signals, and exits as the command then does', async () => {
      const trapped =
        "trap 'echo INT; exit 3' INT; trap 'echo HUP' HUP; echo started $$; while :; do sleep 0.05; done";
      const guard = await start('d', '--', 'sh', '-c', trapped);
      await started(guard);
      guard.signal('SIGHUP');
      await until('HUP', () => guard.stdout.includes('HUP'));
      expect(guard.isOver).to.equal(false);
      guard.signal('SIGINT');
      const { code, stdout } = await guard.exited();
      expect([code, stdout.split('\n').slice(1)]).to.deep.equal([3, ['HUP', 'INT']]);
    });

    it('distinguishes files by their paths in the repository, from any directory', async () => {
      const guard = await start('x/../e', './e', join(repository.top, 'e'), '--', ...waits);
      await started(guard);
      expect(Object.keys(await held())).to.deep.equal(['e']);
      await guard.stop();
    });

    it('acquires and releases files with unusual names', async () => {
      const odd = ['__proto__', 'constructor', '*.ts', '.hidden', '-v', 'a\nb', '\u001b[31m'];
      const show = [process.execPath, main, 'files', '--repository', '.'];
      const { code, stdout, stderr } = await run(...odd.map((name) => `./${name}`), '--', ...show);
      expect([code, stderr]).to.deep.equal([0, '']);
      expect(stdout.split('\n')).to.have.length(1 + odd.length);
      expect(stdout).to.include('\na\\u000ab ').and.to.include('\n\\u001b[31m ');
      expect(await held()).to.deep.equal({});
    });

    it('acquires files of several repositories, and releases all of them', async () => {
      const other = await Repository.create();
      const guard = await start('g', join(other.top, 'g'), '--', ...waits);
      await started(guard);
      expect([Object.keys(await held()), Object.keys(await holders(server, other.top))]).to.deep.equal([
        ['g'],
        ['g'],
      ]);
      await guard.stop();
      expect([await held(), await holders(server, other.top)]).to.deep.equal([{}, {}]);
    });

    it('keeps a named owner alive, with the files that it held before', async () => {
      await take(server, 'ann', repository.top, 'h1');
      const { code, stdout } = await run(
        'h1',
        'h2',
        '--owner',
        'ann',
        '--',
        'sh',
        '-c',
        'echo "$LEASEHOLD_OWNER"',
      );
      expect([code, stdout]).to.deep.equal([0, 'ann']);
      expect(await held()).to.deep.equal({ h1: 'ann' });
      await apiOf(server).heartbeat('ann');
      await apiOf(server).end('ann');
    });

    it('acts for the same owner within another guard', async () => {
      const guard = await start('i', '--', process.execPath, main, 'guard', 'i', '--', ...waits);
      await started(guard);
      expect(Object.keys(await held())).to.deep.equal(['i']);
      await guard.stop();
      expect(await held()).to.deep.equal({});
    });

    it('stops waiting on a signal, and does not run the command', async () => {
      await take(server, 'bob', repository.top, 'j');
      for (const [signal, code] of [
        ['SIGINT', 130],
        ['SIGTERM', 143],
      ] as const) {
        const guard = await start('j', '--', 'echo', 'ran');
        await until('a word of the contention', () => guard.stderr.length > 0);
        guard.signal(signal);
        const exit = await guard.exited();
        expect([exit.code, exit.stdout]).to.deep.equal([code, '']);
        expect(exit.stderr).to.match(
          /^leasehold: j is held by bob \(test\), for [\d.]+ m?s; asking again in (3 min|2 min \d+ s)$/,
        );
      }
      await apiOf(server).end('bob');
    });

    it('competes with another guard of the same caller (B6)', async () => {
      const first = await start('both', '--', ...waits);
      await started(first);
      const second = await start('both', '--', 'echo', 'ran');
      await until('a word of the contention', () => second.stderr.length > 0);
      expect(second.stderr[0]).to.match(new RegExp(`held by guard-\\S+-${first.pid}-`));
      second.signal('SIGTERM');
      expect((await second.exited()).code).to.equal(143);
      await first.stop();
      expect(await held()).to.deep.equal({});
    });

    it('does not run the command without a server, unless a flag allows it', async () => {
      const denied = await run('k', '--url', nowhere, '--', 'echo', 'ran');
      expect([denied.code, denied.stdout]).to.deep.equal([69, '']);
      expect(denied.stderr).to.match(/^leasehold: there is no server at \S+: .*; the command is not run$/);
      const allowed = await run(
        'k',
        '--url',
        nowhere,
        '--on-unreachable',
        'allow',
        '--',
        'sh',
        '-c',
        'echo ran; exit 4',
      );
      expect([allowed.code, allowed.stdout]).to.deep.equal([4, 'ran']);
      expect(allowed.stderr).to.match(/running the command without a lease$/);
    });

    it('stops its command and frees the files when it is killed', async () => {
      const guard = await start('s', '--grace', '1', '--', ...stubborn);
      await until('the command', () => guard.stdout.length === 2);
      const pids = guard.stdout.map((line) => lookUp(Number(line.split(' ')[1])) as ProcessFacts);
      const { stderr } = await guard.kill();
      await until('the end of the command', () => !pids.some(isAlive));
      expect(stderr).to.equal('leasehold: the guard was killed; stopping its command');
      expect(await held()).to.deep.equal({});
    });

    it('stops its command when it is killed and its output is closed', async () => {
      const options = { env: { ...process.env, LEASEHOLD_URL: server.http }, cwd: repository.top } as const;
      const args = [main, 'guard', 'u', '--', ...waits];
      const guard = spawn(process.execPath, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
      await watchProcess(guard.pid as number);
      const [line] = await once(guard.stdout, 'data');
      const command = lookUp(Number(String(line).split(' ')[1])) as ProcessFacts;
      guard.stdout.destroy();
      guard.stderr.destroy();
      guard.kill('SIGKILL');
      await until('the end of the command', () => !isAlive(command));
      await until('its files', async () => !('u' in (await held())));
      await forgetProcess(guard.pid as number);
    });

    it("keeps a named owner's files when the guard is killed", async () => {
      await take(server, 'eve', repository.top, 't1');
      const guard = await start('t2', '--owner', 'eve', '--', ...waits);
      const command = await started(guard);
      await guard.kill();
      expect(isAlive(command)).to.equal(false);
      expect(await held()).to.deep.equal({ t1: 'eve', t2: 'eve' });
      await apiOf(server).end('eve');
    });

    it("prints the server's refusal, and exits with 1", async () => {
      const { code, stdout, stderr } = await run('n', '--owner', 'o'.repeat(201), '--', 'echo', 'ran');
      expect([code, stdout]).to.deep.equal([1, '']);
      expect(stderr).to.include('owner_id').and.to.include('the command is not run');
    });

    it('prints a usage error, and exits with 2', async () => {
      for (const [args, says] of [
        [[], 'names no file'],
        [['--', 'true'], 'names no file'],
        [['a'], 'names no command'],
        [['a', '--'], 'names no command'],
        [['.', '--', 'true'], 'directory'],
        [['a', '--grace', 'long', '--', 'true'], '--grace'],
        [['a', '--on-unreachable', 'maybe', '--', 'true'], '--on-unreachable'],
        [['a', '--frobnicate', '--', 'true'], '--frobnicate'],
      ] as const) {
        const { code, stdout, stderr } = await run(...args);
        expect([code, stdout], stderr).to.deep.equal([2, '']);
        expect(stderr).to.include(says).and.to.include('leasehold guard --help');
      }
    });

    if (engine.name === 'embedded') return;

    it('adds little run time to a command', async function () {
      this.timeout(60_000);
      const bare: number[] = [];
      const guarded: number[] = [];
      for (let i = 0; i < 9; i++) {
        bare.push(await timed(['true']));
        guarded.push(await timed([process.execPath, main, 'guard', 'o', '--url', server.http, '--', 'true']));
      }
      const addedMs = median(guarded) - median(bare);
      process.stdout.write(`      a guard adds ${Math.round(addedMs)} ms to a command\n`);
      // 150 ms on an idle machine.
      expect(addedMs).to.be.lessThan(1_500);
    });

    it('stops the command and its descendants when an operator revokes the file', async function () {
      this.timeout(60_000);
      const guard = await start('m', '--owner', 'carl', '--grace', '1', '--', ...stubborn);
      await until('the command', () => guard.stdout.length === 2);
      const pids = guard.stdout.map((line) => lookUp(Number(line.split(' ')[1])) as ProcessFacts);
      await take(server, 'dora', repository.top, 'm');
      await takeAway(server, 'dora', repository.top, 'm');
      const { code, stderr } = await guard.exited(30_000);
      expect(code).to.equal(76);
      expect(stderr).to.match(/^leasehold: the lease is lost: m was taken away at .*; stopping the command$/);
      expect(pids.map((each) => isAlive(each))).to.deep.equal([false, false]);
      expect(await held()).to.deep.equal({ m: 'dora' });
      await apiOf(server).end('dora');
    });

    it('halts its caller until an operator gives an instruction, restarts included (B2, B6)', async function () {
      this.timeout(60_000);
      await take(server, 'erik', repository.top, 's');
      const waiting = async () => {
        const rows = await apiOf(server).blockers({ repository: repository.top });
        return rows.filter(({ paths }) => paths.includes('s'));
      };
      const first = await start('s', '--', 'echo', 'ran');
      await until('a word of the contention', () => first.stderr.length > 0);
      const [contention] = await waiting();
      const caller = contention?.owner_id ?? '';
      expect(caller).to.match(/^caller \S+@/);
      first.signal('SIGINT');
      expect((await first.exited()).code).to.equal(130);
      // The same caller through shells of its own waits for the rest of the contention.
      await letWaitingPass(server, caller, 100_000);
      const [shell, ...args] = [
        'sh',
        '-c',
        `exec "$@"`,
        'sh',
        process.execPath,
        main,
        'guard',
        's',
        '--',
        'true',
      ];
      const second = spawn(shell as string, args, {
        cwd: repository.top,
        env: { ...process.env, LEASEHOLD_URL: server.http },
      });
      await watchProcess(second.pid as number);
      const [said] = await once(second.stderr, 'data');
      expect(String(said)).to.match(/asking again in (5\d s|1 min( [12]?\d s)?)/);
      second.kill('SIGINT');
      await once(second, 'close');
      await forgetProcess(second.pid as number);
      expect((await waiting()).map(({ contention_id }) => contention_id)).to.deep.equal([
        contention?.contention_id,
      ]);
      await letWaitingPass(server, caller, 79_000);
      const third = await run('s', '--', 'echo', 'ran');
      expect([third.code, third.stdout]).to.deep.equal([75, '']);
      expect(third.stderr).to.include(caller).and.to.include(contention?.contention_id);
      const again = await run('s', '--', 'echo', 'ran');
      expect([again.code, again.stdout]).to.deep.equal([75, '']);
      const instructed = await runCommand(
        ['files', 'instruct', contention?.contention_id ?? '', 'FORCE_RELEASE'],
        { LEASEHOLD_URL: server.http },
      );
      expect([instructed.code, instructed.stdout]).to.deep.equal([
        0,
        `${contention?.contention_id}: its owner is not alive; FORCE_RELEASE is kept, and applied when it asks again`,
      ]);
      const [halted] = await waiting();
      if (halted?.state !== 'HALTED') expect.fail('the halt is not listed any more');
      expect(halted.kept_instruction?.instruction).to.equal('FORCE_RELEASE');
      const last = await run('s', '--', 'echo', 'ran');
      expect([last.code, last.stdout, last.stderr]).to.deep.equal([0, 'ran', '']);
      expect(await waiting()).to.deep.equal([]);
      await apiOf(server).end('erik');
    });

    it('waits for the retry, and runs the command if the file is free by then', async () => {
      const first = await start('p', '--', ...waits);
      await started(first);
      // The second owner was denied a while ago, so little of its three minutes is left.
      expect((await take(server, 'second', repository.top, 'p')).outcome).to.equal('contended');
      await letWaitingPass(server, 'second', 177_000);
      const second = await start('p', '--owner', 'second', '--', 'sh', '-c', 'echo ran');
      await until('a word of the contention', () => second.stderr.length > 0);
      const [said = ''] = second.stderr;
      expect(said).to.match(
        /^leasehold: p is held by guard-\S+ \(sh, process \d+ on \S+, branch main\), for [\d.]+ m?s; asking again in [123](\.\d)? s$/,
      );
      await first.stop();
      // The file is released, but the guard still waits until its retry is due.
      expect((await take(server, 'second', repository.top, 'p')).outcome).to.equal('contended');
      const { code, stdout, stderr } = await second.exited();
      expect([code, stdout, stderr]).to.deep.equal([0, 'ran', said]);
      expect(await held()).to.deep.equal({});
    });

    it('does not run the command if the server is gone at the retry', async () => {
      await using going = await startTestServer(engine, { shared: server.store });
      await take(server, 'holder', repository.top, 'r');
      await take(server, 'waiter', repository.top, 'r');
      await letWaitingPass(server, 'waiter', 178_000);
      const guard = await start(
        'r',
        '--owner',
        'waiter',
        '--url',
        going.http,
        '--on-unreachable',
        'allow',
        '--',
        'echo',
        'ran',
      );
      await until('a word of the contention', () => guard.stderr.length > 0);
      await going.stop();
      const { code, stdout, stderr } = await guard.exited();
      expect([code, stdout]).to.deep.equal([69, '']);
      expect(stderr).to.match(
        /^leasehold: r is held by holder .*\nleasehold: there is no server at .*; the command is not run/,
      );
      await apiOf(server).end('holder');
    });

    it('halts if the file is still held at the retry: full report, exit status 75, no command', async () => {
      const first = await start('q', '--', ...waits);
      await started(first);
      await take(server, 'third', repository.top, 'q');
      await letWaitingPass(server, 'third', 179_000);
      const { code, stdout, stderr } = await run('q', '--owner', 'third', '--', 'echo', 'ran');
      expect([code, stdout]).to.deep.equal([75, '']);
      const [contended, ...report] = stderr.split('\n');
      expect(contended).to.include('asking again in');
      const [blocked] = await apiOf(server).blockers({ owner_id: 'third' });
      if (blocked?.state !== 'HALTED') expect.fail('is not halted');
      for (const word of [
        `q was denied twice, the second time after 180 s`,
        'third',
        repository.top,
        `guard-${hostname()}-${first.pid}`,
        blocked.denied_at,
        blocked.retried_at,
        blocked.halted_at,
        'the same as at the denial',
        `leasehold files instruct ${blocked.contention_id} RETRY | ABANDON | FORCE_RELEASE`,
      ]) {
        expect(report.join('\n')).to.include(word);
      }
      expect(first.isOver).to.equal(false);
      await first.stop();
    });
  });
});

async function timed([file = '', ...args]: string[]): Promise<number> {
  const startedMs = performance.now();
  const [code] = await once(spawn(file, args, { stdio: 'ignore' }), 'exit');
  expect(code).to.equal(0);
  return performance.now() - startedMs;
}

const median = (values: number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] as number;

/** Acts as an operator: the waiting owner must be halted before the instruction. */
async function takeAway(
  server: TestServer,
  ownerId: string,
  repository: string,
  path: string,
): Promise<void> {
  await letWaitingPass(server, ownerId, 180_000);
  const halted = await take(server, ownerId, repository, path);
  if (halted.outcome !== 'halted') throw new Error(`is ${halted.outcome} and not halted`);
  const { contention_id } = halted.blocker_report;
  await apiOf(server).instruct(contention_id, { instruction: 'FORCE_RELEASE' });
}
