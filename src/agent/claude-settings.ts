import { preToolUseTimeoutS, writingTools } from './claude-code-hook.ts';

/** The settings of Claude Code have an unexpected form, so they are not changed. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';
}

interface HookEntry {
  type?: unknown;
  command?: unknown;
  timeout?: unknown;
}

interface Group {
  matcher?: unknown;
  hooks: HookEntry[];
}

type Json = Record<string, unknown>;

const quickTimeoutS = 15;

/** The events to hook. An event without a matcher covers every tool, or has no tools. */
const wanted: readonly { event: string; matcher?: string; timeoutS: number }[] = [
  { event: 'PreToolUse', matcher: Object.keys(writingTools).join('|'), timeoutS: preToolUseTimeoutS },
  { event: 'PostToolUse', matcher: '*', timeoutS: quickTimeoutS },
  { event: 'UserPromptSubmit', timeoutS: quickTimeoutS },
  { event: 'Stop', timeoutS: quickTimeoutS },
  { event: 'SubagentStop', timeoutS: quickTimeoutS },
  { event: 'SessionEnd', timeoutS: quickTimeoutS },
];

/** Whether an installation of any version and path has written the hook. */
const isOurs = ({ command }: HookEntry): boolean =>
  typeof command === 'string' && /(^|[\s"'/\\])(leasehold|main\.[jt]s)["']? hook claude-code\b/.test(command);

/** The settings with our hooks added and everything else unchanged. The function is idempotent. */
export function withHooks(text: string, command: string): string {
  return edited(text, (settings) => {
    const hooks = hooksIn(settings);
    const others = withoutOurs(hooks, (event) => wanted.some((each) => each.event === event));
    for (const { event, matcher, timeoutS } of wanted) {
      const group = {
        ...(matcher === undefined ? {} : { matcher }),
        hooks: [{ type: 'command', command, timeout: timeoutS }],
      };
      const groups = groupsOf(hooks, event);
      // An existing group keeps its position, so that a second installation changes nothing.
      const at = groups.findIndex((each) => each.hooks.length > 0 && each.hooks.every(isOurs));
      const kept = groupsOf(others, event);
      const before =
        at < 0 ? kept.length : groups.slice(0, at).filter((each) => !each.hooks.every(isOurs)).length;
      others[event] = [...kept.slice(0, before), group, ...kept.slice(before)];
    }
    return { ...settings, hooks: others };
  });
}

/** The text of settings without our hooks. */
export function withoutHooks(text: string): string {
  return edited(text, (settings) => {
    if (!('hooks' in settings)) return settings;
    const { hooks: _, ...rest } = settings;
    const hooks = withoutOurs(hooksIn(settings), () => false);
    return Object.keys(hooks).length === 0 ? rest : { ...settings, hooks };
  });
}

/** Drops events that become empty, unless `isKept` returns true. */
function withoutOurs(hooks: Json, isKept: (event: string) => boolean): Json {
  const others: Json = {};
  for (const event of Object.keys(hooks)) {
    const groups = groupsOf(hooks, event);
    const left = groups.flatMap((group) => {
      const entries = group.hooks.filter((entry) => !isOurs(entry));
      if (entries.length === group.hooks.length) return [group];
      return entries.length === 0 ? [] : [{ ...group, hooks: entries }];
    });
    if (left.length > 0 || left.length === groups.length || isKept(event)) others[event] = left;
  }
  return others;
}

function edited(text: string, edit: (settings: Json) => Json): string {
  const settings = settingsIn(text);
  const after = edit(settings);
  if (JSON.stringify(after) === JSON.stringify(settings)) return text;
  const [, indent = '  '] = /^\s*\{\r?\n([ \t]+)/.exec(text) ?? [];
  return `${JSON.stringify(after, null, indent)}\n`;
}

/** An empty text counts as empty settings. */
function settingsIn(text: string): Json {
  if (text.trim() === '') return {};
  try {
    const settings: unknown = JSON.parse(text);
    if (isObject(settings)) return settings;
  } catch (cause) {
    throw new SettingsError(`is not JSON: ${(cause as Error).message}`, { cause });
  }
  throw new SettingsError('is not a JSON object');
}

function hooksIn(settings: Json): Json {
  const { hooks = {} } = settings;
  if (!isObject(hooks)) throw new SettingsError('has "hooks" that are not an object');
  return hooks;
}

function groupsOf(hooks: Json, event: string): Group[] {
  const groups = hooks[event] ?? [];
  const isGroup = (group: unknown): group is Group =>
    isObject(group) && Array.isArray(group.hooks) && group.hooks.every(isObject);
  if (Array.isArray(groups) && groups.every(isGroup)) return groups;
  throw new SettingsError(`has "hooks.${event}" that are not a list of {matcher, hooks}`);
}

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
