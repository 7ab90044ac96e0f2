import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect } from 'chai';
import { callerName } from '../../src/agent/caller-name.ts';
import { findAgent } from '../../src/agent/find-agent.ts';
import {
  ancestors,
  descendants,
  fromPs,
  isAlive,
  lookUp,
  type ProcessFacts,
} from '../../src/agent/process-tree.ts';
import { atEnd, watchProcess } from '../support/cleanup.ts';
import { until } from '../support/process.ts';

async function sleeper(...words: string[]): Promise<ChildProcess & { pid: number }> {
  const [file = 'sleep', ...args] = words.length > 0 ? words : ['sleep', '600'];
  const child = spawn(file, args, { stdio: 'ignore' });
  await once(child, 'spawn');
  await watchProcess(child.pid as number);
  atEnd(async () => void child.kill('SIGKILL'));
  return child as ChildProcess & { pid: number };
}

describe('processes', () => {
  it('identifies a process by pid and start time, and only while it lives', async () => {
    const child = await sleeper();
    const facts = lookUp(child.pid) as ProcessFacts;
    expect([facts.parent, facts.words]).to.deep.equal([process.pid, ['sleep', '600']]);
    expect(isAlive(facts)).to.equal(true);
    expect(isAlive({ pid: facts.pid, started: `${facts.started}0` })).to.equal(false);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect([isAlive(facts), lookUp(child.pid)]).to.deep.equal([false, undefined]);
  });

  it('omits zombies from the descendants', async () => {
    // The shell starts a process that ends, and then becomes a process that never waits for it.
    const parent = await sleeper('sh', '-c', 'true & exec sleep 600');
    const hasZombie = () => fromPs(['-A']).every(({ parent: of }) => of !== parent.pid);
    await until('the sleep that the shell becomes', () => lookUp(parent.pid)?.words[0] === 'sleep');
    await until('the end of its child', hasZombie);
    expect(descendants(parent.pid)).to.deep.equal([]);
  });

  it('finds all ancestors up to the first process, and all descendants', async () => {
    expect(ancestors()[0]?.pid).to.equal(process.ppid);
    expect(ancestors().at(-1)?.parent).to.equal(0);
    const child = await sleeper('sh', '-c', 'sh -c "sleep 600; true"; true');
    await until('the grandchild', () => descendants(child.pid).length === 2);
    expect(descendants(process.pid).map(({ pid }) => pid)).to.include(child.pid);
    for (const { pid } of descendants(child.pid)) process.kill(pid, 'SIGKILL');
  });

  it('reads the same facts with ps, for systems without /proc', async () => {
    const child = await sleeper();
    const [facts] = fromPs(['-p', String(child.pid)]);
    expect([facts?.parent, facts?.words]).to.deep.equal([process.pid, ['sleep', '600']]);
    expect(facts?.started).to.match(/^\w{3} \w{3} \d+ [\d:]{8} \d{4}$/);
    expect(fromPs(['-p', '2147483646'])).to.deep.equal([]);
  });
});

describe('findAgent', () => {
  const line = (...commands: string[]): ProcessFacts[] =>
    commands.map((command, i) => ({
      pid: 100 + i,
      parent: 101 + i,
      started: String(i),
      words: command.split(' '),
    }));
  const found = (...commands: string[]) => findAgent(line(...commands), '')?.name;

  it('finds the nearest ancestor called claude', () => {
    expect(found('sh -c leasehold_hook_claude-code', 'claude --resume', 'bash', 'claude')).to.equal('claude');
    expect(found('node /usr/bin/npx leasehold', 'sh', 'node --flag /lib/claude-code/cli.js')).to.equal(
      'cli.js',
    );
    expect(found('sh', 'vim', 'bash', '/opt/claude')).to.equal('claude');
    expect(found('sh', '/home/ann/.local/share/claude/versions/2.1.0 --resume', 'bash')).to.equal('2.1.0');
  });

  it("ignores a script in Claude's folder that calls the hook and ends before the session", () => {
    expect(found('sh', 'node /home/ann/.claude/hooks/lease.js', 'sh', 'claude')).to.equal('claude');
    expect(found('sh', '/home/ann/claude-projects/run', 'sh', 'claude')).to.equal('claude');
  });

  it('falls back to the nearest ancestor that is no shell and starts no other commands', () => {
    expect(found('/bin/sh -c x', 'node /usr/bin/npx leasehold', '-bash', 'my-agent', 'tmux')).to.equal(
      'my-agent',
    );
    expect(found('sh', 'node /opt/other-agent.js', 'bash')).to.equal('other-agent.js');
    expect(found('sh', 'bash')).to.equal(undefined);
  });

  it('returns the named process, or none if it does not exist', () => {
    expect(findAgent(line('claude'), String(process.pid))?.pid).to.equal(process.pid);
    expect(findAgent(line('claude'), '2147483646')).to.equal(undefined);
    expect(findAgent(line('claude'), 'x')).to.equal(undefined);
  });
});

describe('the caller of a guard', () => {
  const facts = (pid: number, ...words: string[]): ProcessFacts => ({
    pid,
    parent: 1,
    started: `at ${pid}`,
    words,
  });
  const who = { user: 'ann', host: 'laptop' };
  const login = facts(30, '-zsh');

  it('names the agent as the caller, whatever shells start its commands (B6)', () => {
    const agent = facts(20, 'node', '/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js');
    const name = callerName([facts(99, 'bash', '-c', 'leasehold guard a -- b'), agent, login], who);
    expect(name).to.match(/^caller ann@laptop cli\.js 20 [0-9a-f]{8}$/);
    expect(callerName([facts(98, '/bin/sh', 'build.sh'), facts(97, 'make'), agent, login], who)).to.equal(
      name,
    );
  });

  it('names user, host and interactive shell as the caller without an agent (B6)', () => {
    const name = callerName([login, facts(10, 'sshd')], who);
    expect(name).to.match(/^caller ann@laptop zsh 30 [0-9a-f]{8}$/);
    for (const between of [
      [facts(41, 'bash', 'loop.sh')],
      [facts(42, 'sh', '-c', 'leasehold guard a -- b'), facts(43, 'make')],
      [facts(44, 'sh', '-ec', 'x'), facts(45, 'npm')],
    ])
      expect(callerName([...between, login, facts(10, 'sshd')], who)).to.equal(name);
    expect(callerName([facts(31, '-zsh'), facts(10, 'sshd')], who)).not.to.equal(name);
    expect(callerName([facts(50, 'sh', '-c', 'x'), facts(1, 'init')], who)).to.equal('caller ann@laptop');
    expect(callerName([login], { ...who, host: 'x'.repeat(500) })).to.have.length.at.most(200);
  });
});
