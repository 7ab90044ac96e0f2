import { hostname } from 'node:os';
import { ServerError } from '../client/http-client.ts';
import { inLines } from '../lib/terminal-text.ts';
import { acquire } from './acquire-and-wait.ts';
import { branchOf, type FileKey, locate, PathError } from './file-key.ts';
import type { Contention, FilesClient } from './files-client.ts';
import { type Agent, agentPidVariable, findAgent } from './find-agent.ts';
import type { OnUnreachable } from './guard.ts';
import { ensureDaemon } from './keepalive-daemon.ts';
import { contendedWords, deniedWords, haltedWords, shown } from './messages.ts';
import type { SessionStore } from './session-store.ts';

/**
 * The limit of all waits of one hook. It is longer than the wait for a contention's retry. It is so much
 * shorter than the installed timeout that the hook always answers: after its timeout, Claude Code lets the
 * tool continue.
 */
const timeoutMs = 200_000;
export const preToolUseTimeoutS = 240;

/** The tools that write files, and the input field that names the file. */
export const writingTools: Readonly<Record<string, string>> = {
  Write: 'file_path',
  Edit: 'file_path',
  MultiEdit: 'file_path',
  NotebookEdit: 'notebook_path',
};

/** The hook's input from the agent; only the fields that matter here. */
export interface HookInput {
  event: string;
  sessionId: string;
  agentId: string | undefined;
  agentType: string | undefined;
  cwd: string | undefined;
  tool: string;
  toolInput: Record<string, unknown>;
}

/** The hook's result: the output for the agent and for people, and the exit code. */
export interface HookAnswer {
  code: number;
  stdout?: object;
  stderr?: string;
}

export interface HookOptions {
  api: FilesClient;
  notes: SessionStore;
  onUnreachable: OnUnreachable;
}

const noOutput: HookAnswer = { code: 0 };

/** Reads a hook's input; returns a sentence where the input is invalid. */
export function readHookInput(text: string): HookInput | string {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch {
    return 'the input of the hook is not JSON';
  }
  const fields = objectIn(input);
  if (!fields) return 'the input of the hook is not an object';
  const { hook_event_name: event, session_id: sessionId } = fields;
  if (typeof event !== 'string') return 'the input of the hook has no hook_event_name';
  if (typeof sessionId !== 'string' || sessionId.trim() === '')
    return 'the input of the hook has no session_id';
  return {
    event,
    sessionId,
    agentId: textIn(fields.agent_id),
    agentType: textIn(fields.agent_type),
    cwd: textIn(fields.cwd),
    tool: textIn(fields.tool_name) ?? '',
    toolInput: objectIn(fields.tool_input) ?? {},
  };
}

/** Handles an event. Events and tools that do not concern leases pass. */
export async function answerHook(input: HookInput, options: HookOptions): Promise<HookAnswer> {
  switch (input.event) {
    case 'PreToolUse':
      return Object.hasOwn(writingTools, input.tool) ? beforeWriting(input, options) : noOutput;
    case 'PostToolUse':
    case 'UserPromptSubmit':
      return reportActivity(ownerOf(input), options);
    case 'Stop':
      return reportStop(ownerOf(input), options);
    case 'SubagentStop':
      return input.agentId === undefined ? noOutput : reportEnd([ownerOf(input)], options);
    case 'SessionEnd':
      return reportEnd(ownersOf(input, options.notes), options);
    default:
      return noOutput;
  }
}

/** A session is an owner, and each of its sub-agents is an owner. */
const ownerOf = ({ sessionId, agentId }: HookInput): string =>
  agentId === undefined ? sessionId : `${sessionId}:${agentId}`;

/** The owners of a session that have a note. */
const ownersOf = ({ sessionId }: HookInput, notes: SessionStore): string[] =>
  notes
    .all()
    .map(({ owner_id }) => owner_id)
    .filter((ownerId) => ownerId === sessionId || ownerId.startsWith(`${sessionId}:`));

async function beforeWriting(input: HookInput, options: HookOptions): Promise<HookAnswer> {
  const field = writingTools[input.tool] as string;
  const file = textIn(input.toolInput[field]);
  if (file === undefined) return wrong(`${input.tool} names no ${field}, so no file was leased`);
  let key: FileKey;
  try {
    key = locate(file, input.cwd === undefined ? {} : { from: input.cwd });
  } catch (error) {
    if (error instanceof PathError) return wrong(`${error.message}, so no file was leased`);
    throw error;
  }
  const agent = findAgent();
  const warnings: string[] = [];
  const denials: string[] = [];
  const on = {
    heard: () => void warnings.push(...keep(input, agent, options)),
    denied: (words: string) => void denials.push(words),
  };
  try {
    const answer = withWarnings(await lease(input, key, agent, options, on), warnings);
    const isGranted = answer.stdout === undefined && denials.length > 0;
    return isGranted ? { ...answer, stderr: [...denials, 'granted'].join('\n') } : answer;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    // After a denial another owner is known to hold the file. The agent must not write it because the server
    // has become unreachable since.
    if (options.onUnreachable === 'deny' || denials.length > 0) {
      return deny([...denials, `${key.path} was not leased: ${error.message}`].join('\n'));
    }
    return withWarnings(noOutput, [`${key.path} is written without a lease: ${error.message}`]);
  }
}

async function lease(
  input: HookInput,
  { repository, path }: FileKey,
  agent: Agent | undefined,
  { api }: HookOptions,
  on: { heard(): void; denied(words: string): void },
): Promise<HookAnswer> {
  const request = {
    owner_id: ownerOf(input),
    repository,
    paths: [path],
    owner: {
      agent: ['claude-code', input.agentType].filter(Boolean).join(' ').slice(0, 200),
      host: hostname(),
      pid: agent?.pid ?? null,
      branch: branchOf(repository) ?? null,
      // Sub-agents may borrow the files that the session holds.
      ...(input.agentId === undefined ? {} : { parent_owner_id: input.sessionId }),
    },
  };
  const onContended = (contention: Contention) => {
    // The wait is longer than the TTL of an owner without heartbeats.
    on.heard();
    on.denied(contendedWords(contention));
  };
  const answer = await acquire(api, request, { onContended, timeoutMs });
  on.heard();
  switch (answer.outcome) {
    case 'granted':
      return noOutput;
    case 'halted':
      return deny(haltedWords(answer.blocker_report));
    case 'timed out':
      return deny(
        `${deniedWords(answer.contention)}; it may be asked for once more at ${answer.contention.retry_at}`,
      );
  }
}

/** Starts the keep-alive process of the owner; returns the warnings if that fails. */
function keep(input: HookInput, agent: Agent | undefined, { api, notes }: HookOptions): string[] {
  if (!agent) {
    return [
      `the agent's process is not to be found, so leases last a minute only; ${agentPidVariable} may name it`,
    ];
  }
  const owner_id = ownerOf(input);
  try {
    ensureDaemon({ owner_id, url: api.url, agent, since: new Date().toISOString() }, notes);
    return [];
  } catch (error) {
    return [`leases last a minute only, because ${notes.folder} cannot be used: ${(error as Error).message}`];
  }
}

/** An agent that has never written a file is no owner, so no request is needed. */
async function reportActivity(ownerId: string, { api, notes }: HookOptions): Promise<HookAnswer> {
  if (!notes.read(ownerId)) return noOutput;
  try {
    await api.activity(ownerId);
    return noOutput;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    // An unreachable server is reported at the next write; this report of activity is optional.
    return error.isUnreachable ? noOutput : withWarnings(noOutput, [error.message]);
  }
}

async function reportStop(ownerId: string, { api, notes }: HookOptions): Promise<HookAnswer> {
  if (!notes.read(ownerId)) return noOutput;
  try {
    await api.stop(ownerId);
    const { lost_files } = await api.heartbeat(ownerId);
    const lost = lost_files.map(
      ({ path, lost_at, reason }) => `${shown(path)} was taken away at ${shown(lost_at)}: ${shown(reason)}`,
    );
    return withWarnings(noOutput, lost);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return wrong(error.message);
  }
}

async function reportEnd(ownerIds: readonly string[], { api, notes }: HookOptions): Promise<HookAnswer> {
  const known = ownerIds.filter((ownerId) => notes.read(ownerId) !== undefined);
  for (const ownerId of known) notes.remove(ownerId);
  const results = await Promise.allSettled(known.map((ownerId) => api.end(ownerId)));
  for (const result of results) {
    if (result.status === 'fulfilled') continue;
    if (!(result.reason instanceof ServerError)) throw result.reason;
    return wrong(
      `could not give the session's files back, they come free within a minute: ${result.reason.message}`,
    );
  }
  return noOutput;
}

const deny = (reason: string): HookAnswer => ({
  code: 0,
  stdout: {
    hookSpecificOutput: {
      hookEventName: 'PreToolUse',
      permissionDecision: 'deny',
      permissionDecisionReason: inLines(`leasehold: ${reason}`),
    },
  },
});

/** Exit code 1 is shown to people, and blocks nothing. */
const wrong = (problem: string): HookAnswer => ({ code: 1, stderr: problem });

/** Adds warnings for people; the agent continues. */
function withWarnings(answer: HookAnswer, warnings: readonly string[]): HookAnswer {
  if (warnings.length === 0) return answer;
  const lines = [...new Set(warnings)].map((warning) => `leasehold: ${warning}`);
  const systemMessage = inLines(lines.join('\n'));
  return { ...answer, stdout: { ...answer.stdout, systemMessage } };
}

const textIn = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

const objectIn = (value: unknown): Record<string, unknown> | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
