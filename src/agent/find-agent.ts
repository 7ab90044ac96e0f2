import { basename } from 'node:path';
import { ancestors, lookUp, type ProcessFacts, type ProcessId } from './process-tree.ts';

/** The process of a coding agent. */
export interface Agent extends ProcessId {
  name: string;
}

/** Names the agent's process where it is not to be guessed. */
export const agentPidVariable = 'LEASEHOLD_AGENT_PID';

/** What stands between an agent and the commands it runs, and is gone with them. */
const betweenThem =
  /^-?(sh|bash|dash|zsh|fish|ksh|ash|busybox|env|timeout|nice|npx|npm|npm-cli|npx-cli|pnpm|yarn|bunx|git|post-commit|post-merge|post-rewrite|leasehold)(\.[cm]?js|\.exe)?$/;
/** Called so, or installed where it is: not everything that somebody keeps in a folder of that name. */
const claude = /(^|\/)claude[^/]*$|\/@anthropic-ai\/claude-|\/claude-code\/|\/claude\/versions\//i;
const interpreters = /^(node|bun|deno)(\.exe)?$/;

/**
 * The agent that this process was started by: the one that the variable names, or the nearest ancestor that is called
 * `claude`, or else the nearest that is no shell and no starter of commands. Nothing where there is none.
 */
export function findAgent(line = ancestors(), named = process.env[agentPidVariable]): Agent | undefined {
  if (named) return findCodingAgent(line, named);
  const nearest = () => line.find((facts) => facts.pid > 1 && !betweenThem.test(basename(programOf(facts))));
  const found = findCodingAgent(line, named) ?? nearest();
  return found && ('words' in found ? agentOf(found) : found);
}

/** The same without the guess: the process that the variable names, or the nearest ancestor that is called `claude`. */
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

/** The program that runs: of an interpreter, the script it was given. */
function programOf({ words: [name = '', ...rest] }: ProcessFacts): string {
  const script = rest.find((word) => !word.startsWith('-'));
  return interpreters.test(basename(name)) && script !== undefined ? script : name;
}
