import { expect } from 'chai';
import { SettingsError, withHooks, withoutHooks } from '../../src/agent/claude-settings.ts';
import { lineDiff } from '../../src/agent/line-diff.ts';

const command = 'leasehold hook claude-code';
const events = ['PreToolUse', 'PostToolUse', 'UserPromptSubmit', 'Stop', 'SubagentStop', 'SessionEnd'];
const text = (value: unknown, indent: number | string = 2) => `${JSON.stringify(value, null, indent)}\n`;
const parsed = (settings: string) => JSON.parse(settings);

/** A user's settings: other hooks for the same events, hooks for other tools, and other settings. */
const theirs = {
  permissions: { allow: ['Bash(ls:*)'] },
  hooks: {
    PreToolUse: [
      { matcher: 'Bash', hooks: [{ type: 'command', command: './check.sh', timeout: 5 }] },
      { matcher: 'Write', hooks: [{ type: 'command', command: 'echo leasehold' }] },
    ],
    Notification: [{ hooks: [{ type: 'command', command: 'say done' }] }],
    Stop: [],
  },
  model: 'x',
};

describe('the settings of Claude Code', () => {
  it('adds every hook, with a timeout before a write that exceeds the wait of three minutes', () => {
    const { hooks } = parsed(withHooks('', command));
    expect(Object.keys(hooks)).to.deep.equal(events);
    const [group] = hooks.PreToolUse;
    expect(group.matcher).to.equal('Write|Edit|MultiEdit|NotebookEdit');
    expect(group.hooks).to.deep.equal([{ type: 'command', command, timeout: 240 }]);
    for (const event of events) expect(hooks[event], event).to.have.length(1);
  });

  it('keeps existing settings in their order', () => {
    const after = parsed(withHooks(text(theirs), command));
    expect(Object.keys(after)).to.deep.equal(Object.keys(theirs));
    expect([after.permissions, after.model]).to.deep.equal([theirs.permissions, theirs.model]);
    expect(after.hooks.PreToolUse.slice(0, 2)).to.deep.equal(theirs.hooks.PreToolUse);
    expect(after.hooks.PreToolUse).to.have.length(3);
    expect(after.hooks.Notification).to.deep.equal(theirs.hooks.Notification);
  });

  it('changes no byte when the hooks are added a second time', () => {
    for (const before of ['', '{}', text(theirs), text(theirs, '\t'), text(theirs, 4)]) {
      const once = withHooks(before, command);
      expect(withHooks(once, command)).to.equal(once);
    }
    expect(withHooks(text(theirs, '\t'), command)).to.include('\n\t\t"PreToolUse"');
  });

  it('replaces hooks of an earlier installation in place, and keeps those beside them', () => {
    const old = {
      type: 'command',
      command: "'/opt/node' /opt/x/main.js hook claude-code --on-unreachable deny",
    };
    const other = { type: 'command', command: 'other' };
    const groups = [
      { matcher: 'A', hooks: [old] },
      { matcher: 'B', hooks: [other] },
      { matcher: 'C', hooks: [old, other] },
    ];
    const { hooks } = parsed(withHooks(text({ hooks: { PreToolUse: groups } }), command));
    expect(hooks.PreToolUse.map((group: { matcher: string }) => group.matcher)).to.deep.equal([
      'Write|Edit|MultiEdit|NotebookEdit',
      'B',
      'C',
    ]);
    expect(hooks.PreToolUse[2].hooks).to.deep.equal([other]);
  });

  it('restores the earlier settings when the hooks are removed', () => {
    expect(parsed(withoutHooks(withHooks(text(theirs), command)))).to.deep.equal({
      ...theirs,
      hooks: { PreToolUse: theirs.hooks.PreToolUse, Notification: theirs.hooks.Notification },
    });
    expect(parsed(withoutHooks(withHooks('', command)))).to.deep.equal({});
    expect(withoutHooks(text(theirs))).to.equal(text(theirs));
  });

  it('refuses settings that Claude Code would not accept', () => {
    for (const [bad, says] of [
      ['{ // comment\n}', 'not JSON'],
      ['[]', 'not a JSON object'],
      ['null', 'not a JSON object'],
      ['{"hooks": []}', '"hooks"'],
      ['{"hooks": {"Stop": {}}}', 'hooks.Stop'],
      ['{"hooks": {"PreToolUse": [{"hooks": "x"}]}}', 'hooks.PreToolUse'],
    ] as const) {
      expect(() => withHooks(bad, command), bad).to.throw(SettingsError, says);
    }
  });
});

describe('the difference between two texts', () => {
  it('shows removed and added lines, and little of the unchanged ones', () => {
    const before = 'a\nb\nc\nd\ne\nf\ng\nh\n';
    const after = 'a\nb\nc\nd\nE\nf\ng\nh\ni\n';
    const shown = lineDiff(before, after).split('\n');
    expect(shown.filter((line) => /^[-+]/.test(line))).to.deep.equal(['- e', '+ E', '+ i']);
    expect(shown).to.include('  d').and.not.to.include('  a');
    expect(lineDiff('', 'a\n')).to.equal('+ a');
    expect(lineDiff('a\n', 'a\n')).to.equal('');
  });
});
