import { hostname, userInfo } from 'node:os';
import { basename } from 'node:path';
import { findCodingAgent } from './find-agent.ts';
import { ancestors, type ProcessFacts } from './process-tree.ts';

/** The most characters that the server accepts for a name. */
const nameMax = 200;

const shells = /^-?(sh|bash|dash|zsh|fish|ksh|ash)$/;

/**
 * The stable name of the caller that starts guards without an owner. It is the coding agent among the
 * ancestors of this process. Without one, it is the user, the host and the interactive shell. Guards that are
 * started again below that process, in a loop or in a script, have the same caller name.
 */
export function callerName(
  line = ancestors(),
  { user = userName(), host = hostname() }: { user?: string; host?: string } = {},
): string {
  const place = `${user}@${host}`.slice(0, 120);
  const agent = findCodingAgent(line);
  const shell = line.findLast(isInteractiveShell);
  const process = agent ?? (shell && { ...shell, name: basename(shell.words[0] ?? '').replace(/^-/, '') });
  const named = process ? ` ${process.name.slice(0, 40)} ${process.pid} ${digest(process.started)}` : '';
  return `caller ${place}${named}`.slice(0, nameMax);
}

/** A shell that runs a script or a single command ends with it, so its process is not a stable name. */
function isInteractiveShell({ words: [name = '', ...rest] }: ProcessFacts): boolean {
  if (!shells.test(basename(name))) return false;
  return rest.every((word) => /^[-+]/.test(word) && !/^-[a-z]*c/.test(word));
}

/** A user may have no name, as in many containers. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'unknown');
  }
}

/**
 * Distinguishes two processes with the same pid. FNV-1a, because `node:crypto` takes longer to load than the
 * rest of a guard.
 */
function digest(text: string): string {
  let hash = 0x811c9dc5;
  for (const character of text) hash = Math.imul(hash ^ (character.codePointAt(0) as number), 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, '0');
}
