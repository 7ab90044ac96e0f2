/** `leasehold hook claude-code`, driven with Claude Code's events by a process that stands in for it. */
import { join } from 'node:path';
import { expect } from 'chai';
import { fromPs } from '../../../src/agent/process-tree.ts';
import { openDatabase } from '../../../src/store/open.ts';
import {
  apiOf,
  FakeAgent,
  holders,
  isKept,
  letWaitingPass,
  Repository,
  take,
} from '../../support/coding-agents.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { until } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const nowhere = '--url http://127.0.0.1:9';
const quiet = { code: 0, stdout: '', stderr: '' };

onEveryEngine((engine) => {
  if (engine.name === 'embedded') return;
  describe('leasehold hook claude-code', () => {
    let server: TestServer;
    let repository: Repository;
    before(async () => {
      server = await startTestServer(engine);
      repository = await Repository.create();
    });
    after(() => server.stop());

    const start = (environment = {}) =>
      FakeAgent.start(repository.top, { LEASEHOLD_URL: server.http, ...environment });
    const at = (path: string) => join(repository.top, path);
    const held = () => holders(server, repository.top);
    const writing = (path: string, fields: object = {}) => ({
      tool_name: 'Write',
      tool_input: { file_path: at(path), content: 'text' },
      tool_use_id: 'toolu_01',
      ...fields,
    });

    /** The owner as the server shows it. */
    async function rowOf(ownerId: string) {
      const database = await openDatabase({ ...server.store.options, poolMax: 1 });
      try {
        const [row] = await database.query<{
          stopped_at: string | null;
          last_heartbeat_at: string;
          last_activity_at: string;
        }>('select * from file_owners where owner_id = $1', [ownerId]);
        return row ?? expect.fail(`there is no owner ${ownerId}`);
      } finally {
        await database.close();
      }
    }

    const heartbeatersOf = (ownerId: string) =>
      fromPs(['-A']).filter(({ words }) => words.at(-1) === ownerId && words.includes('keep-alive'));

    it('acquires the file for the session before each writing tool, and prints nothing', async () => {
      await using agent = await start();
      for (const [tool_name, tool_input] of [
        ['Write', { file_path: at('a1'), content: '' }],
        ['Edit', { file_path: at('new/a2'), old_string: 'x', new_string: 'y' }],
        ['MultiEdit', { file_path: 'a3', edits: [] }],
        ['NotebookEdit', { notebook_path: at('a4.ipynb'), new_source: '' }],
      ] as const) {
        expect(await agent.hook('PreToolUse', { tool_name, tool_input }), tool_name).to.deep.equal(quiet);
      }
      const { session } = agent;
      expect(await held()).to.deep.equal({
        a1: session,
        'new/a2': session,
        a3: session,
        'a4.ipynb': session,
      });
      const [lease] = await apiOf(server).leases({ owner_id: session });
      expect(lease?.owner).to.deep.include({ agent: 'claude-code', pid: agent.pid, branch: 'main' });
      // The owner gets its own file again at once.
      expect(await agent.hook('PreToolUse', writing('a1'))).to.deep.equal(quiet);
    });

    it('gives each sub-agent of the session files of its own until it stops', async () => {
      await using agent = await start();
      const sent = { agent_id: 'b07', agent_type: 'Explore' };
      await agent.hook('PreToolUse', writing('b1'));
      await agent.hook('PreToolUse', writing('b2', sent));
      const owner = `${agent.session}:b07`;
      expect(await held()).to.deep.include({ b1: agent.session, b2: owner });
      const [lease] = await apiOf(server).leases({ owner_id: owner });
      expect(lease?.owner?.agent).to.equal('claude-code Explore');
      expect(await agent.hook('SubagentStop', sent)).to.deep.equal(quiet);
      expect(await held())
        .to.include({ b1: agent.session })
        .and.not.to.have.property('b2');
      expect(await agent.hook('SubagentStop')).to.deep.equal(quiet);
    });

    it('lends a sub-agent the files of the session, and returns them (B5)', async () => {
      await using agent = await start();
      const sent = { agent_id: 'b08', agent_type: 'general-purpose' };
      const child = `${agent.session}:b08`;
      await agent.hook('PreToolUse', writing('lent'));
      expect(await agent.hook('PreToolUse', writing('lent', sent))).to.deep.equal(quiet);
      expect(await held()).to.deep.include({ lent: child });
      const [lease] = await apiOf(server).leases({ owner_id: child });
      expect(lease?.owner?.parent_owner_id).to.equal(agent.session);
      expect(await agent.hook('SubagentStop', sent)).to.deep.equal(quiet);
      expect(await held()).to.deep.include({ lent: agent.session });
      expect(await agent.hook('PreToolUse', writing('lent'))).to.deep.equal(quiet);
    });

    it('allows every other tool and event', async () => {
      await using agent = await start();
      for (const [event, fields] of [
        ['PreToolUse', { tool_name: 'Bash', tool_input: { command: 'ls' } }],
        ['PreToolUse', { tool_name: 'Read', tool_input: { file_path: at('c') } }],
        ['PreToolUse', { tool_name: 'toString', tool_input: {} }],
        ['PostToolUse', { tool_name: 'Read', tool_input: {}, tool_response: {} }],
        ['SessionStart', { source: 'startup' }],
        ['Notification', { message: 'x' }],
        ['Stop', { stop_hook_active: false }],
        ['SessionEnd', { reason: 'other' }],
        ['SomethingNew', {}],
      ] as const) {
        expect(await agent.hook(event, fields, nowhere), event).to.deep.equal(quiet);
      }
    });

    it('reports input that it cannot parse, and blocks no tool', async () => {
      await using agent = await start();
      for (const [input, says] of [
        ['', 'not JSON'],
        ['{', 'not JSON'],
        ['[]', 'not an object'],
        ['null', 'not an object'],
        ['{}', 'hook_event_name'],
        ['{"hook_event_name":"Stop"}', 'session_id'],
        ['{"hook_event_name":"Stop","session_id":7}', 'session_id'],
        ['{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Write"}', 'names no file_path'],
        [
          '{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Write","tool_input":{"file_path":7}}',
          'names no file_path',
        ],
        [
          '{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"Edit","tool_input":{"file_path":"/"}}',
          'is a directory',
        ],
      ] as const) {
        const { code, stdout, stderr } = await agent.leasehold('hook claude-code', { input });
        expect([code, stdout], input).to.deep.equal([1, '']);
        expect(stderr, input)
          .to.match(/^leasehold: [^\n]+\n$/)
          .and.to.include(says);
      }
      // Claude Code treats exit status 2 as a denial.
      const mistyped = await agent.hook('PreToolUse', writing('c'), '--frobnicate');
      expect([mistyped.code, mistyped.stdout]).to.deep.equal([1, '']);
      expect(mistyped.stderr).to.include('--frobnicate');
    });

    it('waits within the hook, retries once, and allows the tool if the file is free by then', async () => {
      await using agent = await start();
      await take(server, 'other', repository.top, 'd');
      await take(server, agent.session, repository.top, 'd');
      await letWaitingPass(server, agent.session, 178_000);
      const started = performance.now();
      const answer = agent.hook('PreToolUse', writing('d'));
      await until('the heartbeater', () => isKept(agent.notes, agent.session));
      await apiOf(server).end('other');
      const { code, stdout, stderr } = await answer;
      expect([code, stdout]).to.deep.equal([0, '']);
      expect(stderr).to.match(
        /^leasehold: d is held by other \(test\), for .*; asking again in [\d.]+ m?s\ngranted\n$/,
      );
      expect(performance.now() - started).to.be.greaterThan(500);
      expect(await held()).to.include({ d: agent.session });
    });

    it('denies the tool if the server is gone at the retry, whatever the settings allow', async () => {
      await using agent = await start();
      await using going = await startTestServer(engine, { shared: server.store });
      await take(server, 'another', repository.top, 'm');
      await take(server, agent.session, repository.top, 'm');
      await letWaitingPass(server, agent.session, 174_000);
      const answer = agent.hook('PreToolUse', writing('m'), `--url ${going.http} --on-unreachable allow`);
      await until('the heartbeater', () => isKept(agent.notes, agent.session));
      await going.stop();
      const { hookSpecificOutput } = JSON.parse((await answer).stdout);
      expect(hookSpecificOutput.permissionDecision).to.equal('deny');
      expect(hookSpecificOutput.permissionDecisionReason).to.match(
        /m is held by another .*\nm was not leased: there is no server/,
      );
      await apiOf(server).end('another');
    });

    it('denies the tool with the full report until an operator gives an instruction', async () => {
      await using agent = await start();
      await take(server, 'holder', repository.top, 'e');
      await take(server, agent.session, repository.top, 'e');
      await letWaitingPass(server, agent.session, 179_500);
      for (let i = 0; i < 2; i++) {
        const { code, stdout } = await agent.hook('PreToolUse', writing('e'));
        expect(code).to.equal(0);
        const { hookSpecificOutput, ...rest } = JSON.parse(stdout);
        const { permissionDecisionReason: reason, ...decision } = hookSpecificOutput;
        expect([rest, decision]).to.deep.equal([
          {},
          { hookEventName: 'PreToolUse', permissionDecision: 'deny' },
        ]);
        for (const word of ['holder (test)', 'e was denied twice', 'leasehold files instruct']) {
          expect(reason).to.include(word);
        }
      }
      // A halted owner waits and is kept alive for its file; it can acquire other files.
      await until('the heartbeater', () => isKept(agent.notes, agent.session));
      expect(await agent.hook('PreToolUse', writing('e2'))).to.deep.equal(quiet);
      const [blocked] = await apiOf(server).blockers({ owner_id: agent.session });
      await apiOf(server).instruct(blocked?.contention_id ?? '', { instruction: 'FORCE_RELEASE' });
      expect(await agent.hook('PreToolUse', writing('e'))).to.deep.equal(quiet);
    });

    it('reports the session as stopped when it stops, and as active when it continues', async () => {
      await using agent = await start();
      const { session } = agent;
      await agent.hook('PreToolUse', writing('f'));
      expect((await rowOf(session)).stopped_at).to.equal(null);
      for (const [event, fields] of [
        ['PostToolUse', { tool_name: 'Bash', tool_input: {}, tool_response: {} }],
        ['UserPromptSubmit', { prompt: 'go on' }],
        ['PreToolUse', writing('f')],
      ] as const) {
        expect(await agent.hook('Stop', { stop_hook_active: false })).to.deep.equal(quiet);
        const stopped = await rowOf(session);
        expect(stopped.stopped_at, event).not.to.equal(null);
        expect(await agent.hook(event, fields)).to.deep.equal(quiet);
        const working = await rowOf(session);
        expect(working.stopped_at, event).to.equal(null);
        expect(working.last_activity_at > stopped.last_activity_at, event).to.equal(true);
      }
      expect(await held()).to.include({ f: session });
    });

    it('tells the user at the stop of a session which files were revoked', async () => {
      await using agent = await start();
      await agent.hook('PreToolUse', writing('g'));
      await take(server, 'thief', repository.top, 'g');
      await letWaitingPass(server, 'thief', 180_000);
      const halted = await take(server, 'thief', repository.top, 'g');
      if (halted.outcome !== 'halted') expect.fail(halted.outcome);
      await apiOf(server).instruct(halted.blocker_report.contention_id, { instruction: 'FORCE_RELEASE' });
      const { code, stdout } = await agent.hook('Stop');
      expect(code).to.equal(0);
      expect(JSON.parse(stdout).systemMessage).to.match(/^leasehold: g was taken away at /);
    });

    it('releases all files when the session ends, and ends the keep-alive process', async () => {
      await using agent = await start();
      const owners = [agent.session, `${agent.session}:x`];
      await agent.hook('PreToolUse', writing('h1'));
      await agent.hook('PreToolUse', writing('h2', { agent_id: 'x' }));
      for (const owner of owners) await until('its heartbeater', () => isKept(agent.notes, owner));
      expect(await agent.hook('SessionEnd', { reason: 'prompt_input_exit' })).to.deep.equal(quiet);
      expect(await held()).not.to.include.any.keys('h1', 'h2');
      for (const owner of owners) await until('its end', () => !isKept(agent.notes, owner));
      expect(agent.notes.all()).to.deep.equal([]);
    });

    it('keeps the owner alive from its first write on, with one process for all hooks', async () => {
      await using agent = await start();
      const { session } = agent;
      const writes = Array.from({ length: 6 }, (_, i) => agent.hook('PreToolUse', writing(`i${i}`)));
      for (const answer of await Promise.all(writes)) expect(answer).to.deep.equal(quiet);
      await until('the heartbeater', () => isKept(agent.notes, session));
      await until('the end of all others', () => heartbeatersOf(session).length === 1);
      // The next hook replaces a process that was killed.
      const [first] = heartbeatersOf(session);
      process.kill(first?.pid ?? 0, 'SIGKILL');
      await until('its end', () => !isKept(agent.notes, session));
      await agent.hook('PreToolUse', writing('i0'));
      await until('another', () => isKept(agent.notes, session));
      expect(heartbeatersOf(session).map(({ pid }) => pid)).not.to.include(first?.pid);
    });

    it("releases all files when the agent's process is gone, and ends the keep-alive process", async () => {
      const agent = await start();
      const { session } = agent;
      await agent.hook('PreToolUse', writing('j'));
      await until('the heartbeater', () => isKept(agent.notes, session));
      await until('a heartbeat', async () => {
        const { last_heartbeat_at, last_activity_at } = await rowOf(session);
        return last_heartbeat_at > last_activity_at;
      });
      expect(await held()).to.include({ j: session });
      await agent.kill();
      await until('the end of the lease', async () => !('j' in (await held())));
      expect([heartbeatersOf(session), agent.notes.all()]).to.deep.equal([[], []]);
      const again = await apiOf(server)
        .heartbeat(session)
        .catch((error: Error) => error.message);
      expect(again).to.include('ended');
    });

    it('continues for a session that another process has taken over', async () => {
      const first = await start();
      await first.hook('PreToolUse', writing('k'));
      await until('the heartbeater', () => isKept(first.notes, first.session));
      await using second = await start({ LEASEHOLD_STATE_DIR: join(first.notes.folder, '..') });
      const fields = writing('k', { session_id: first.session });
      expect(await second.hook('PreToolUse', fields)).to.deep.equal(quiet);
      expect(second.notes.read(first.session)?.agent.pid).to.equal(second.pid);
      first.end();
      await until('the end of the first', () => fromPs(['-p', String(first.pid)]).length === 0);
      // The process checks the note and the agent several times during this delay.
      await new Promise((resolve) => setTimeout(resolve, 1_500));
      expect([isKept(first.notes, first.session), (await held()).k]).to.deep.equal([true, first.session]);
    });

    it('allows writes without a server and tells the user, or denies them and tells the agent', async () => {
      await using agent = await start();
      const allowed = await agent.hook('PreToolUse', writing('l'), nowhere);
      expect([allowed.code, allowed.stderr]).to.deep.equal([0, '']);
      const { systemMessage, ...rest } = JSON.parse(allowed.stdout);
      expect(rest).to.deep.equal({});
      expect(systemMessage).to.match(/^leasehold: l is written without a lease: there is no server at http/);
      const denied = await agent.hook('PreToolUse', writing('l'), `${nowhere} --on-unreachable deny`);
      const { hookSpecificOutput } = JSON.parse(denied.stdout);
      expect([denied.code, hookSpecificOutput.permissionDecision]).to.deep.equal([0, 'deny']);
      expect(hookSpecificOutput.permissionDecisionReason).to.include('there is no server at');
      // A session that holds leases and cannot release them reports that.
      await agent.hook('PreToolUse', writing('l'));
      expect(await agent.hook('PostToolUse', {}, nowhere)).to.deep.equal(quiet);
      for (const event of ['Stop', 'SessionEnd']) {
        const { code, stdout, stderr } = await agent.hook(event, {}, nowhere);
        expect([code, stdout], event).to.deep.equal([1, '']);
        expect(stderr).to.include('there is no server at');
      }
    });
  });
});
