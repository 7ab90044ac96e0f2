import { basename } from 'node:path';
import { ancestors, lookUp, type ProcessFacts, type ProcessId } from './process-tree.ts';

/** The process of a coding agent. */
export interface Agent extends ProcessId {
  name: string;
}

/** Names the agent's process explicitly, where it cannot be detected. */
export const agentPidVariable = 'LEASEHOLD_AGENT_PID';

/** Processes between an agent and the commands that it runs. They end with the command. */
const betweenThem =
  /^-?(sh|bash|dash|zsh|fish|ksh|ash|busybox|env|timeout|nice|npx|npm|npm-cli|npx-cli|pnpm|yarn|bunx|git|post-commit|post-merge|post-rewrite|leasehold)(\.[cm]?js|\.exe)?$/;
/**
 * Matches the program's name or its known install paths, but not every program in a folder of that name.
 */
const claude = /(^|\/)claude[^/]*$|\/@anthropic-ai\/claude-|\/claude-code\/|\/claude\/versions\//i;
const interpreters = /^(node|bun|deno)(\.exe)?$/;

/**
 * The agent that started this process: the process that the variable names, or the nearest ancestor called
 * `claude`, or else the nearest ancestor that is neither a shell nor a command launcher. Undefined where
 * there is none.
 */
export function findAgent(line = ancestors(), named = process.env[agentPidVariable]): Agent | undefined {
  if (named) return findCodingAgent(line, named);
  const nearest = () => line.find((facts) => facts.pid > 1 && !betweenThem.test(basename(programOf(facts))));
  const found = findCodingAgent(line, named) ?? nearest();
  return found && ('words' in found ? agentOf(found) : found);
}

/**
 * The same without the guess: the process that the variable names, or the nearest ancestor called `claude`.
 */
export function findCodingAgent(
  line = ancestors(),
  named = process.env[agentPidVariable],
): Agent | undefined {
  const found = named ? lookUp(Number(named)) : line.find((facts) => claude.test(programOf(facts)));
  return found && agentOf(found);
}

const agentOf = (facts: ProcessFacts): Agent => ({
  pid: facts.pid,
  started: facts.started,
  name: basename(programOf(facts)),
});

/** The running program; for an interpreter, its script. */
function programOf({ words: [name = '', ...rest] }: ProcessFacts): string {
  const script = rest.find((word) => !word.startsWith('-'));
  return interpreters.test(basename(name)) && script !== undefined ? script : name;
}
