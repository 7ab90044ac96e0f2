/**
 * What keeps this process alive, told by kind and as exactly as Node allows.
 *
 * With LEASEHOLD_TEST_TRACE=1 every timer, socket, server and process remembers where it was made, and the report says
 * so. That slows the run down, so it is off until there is something to find.
 */

import { createHook } from 'node:async_hooks';
import { ChildProcess } from 'node:child_process';
import { Server, Socket } from 'node:net';

declare global {
  namespace NodeJS {
    interface Process {
      // Not documented, but the only way from 'a TCP socket' to which one; used for the wording alone.
      _getActiveHandles?(): object[];
    }
  }
}

interface Origin {
  kind: string;
  stack: string;
  resource: WeakRef<object>;
}

const origins = new Map<number, Origin>();
if (process.env.LEASEHOLD_TEST_TRACE) {
  createHook({
    init(id, kind, _trigger, resource) {
      if (kind === 'PROMISE' || kind === 'TickObject') return;
      // The first line is this very function.
      const stack = new Error().stack?.split('\n').filter((line) => line.includes('file://')) ?? [];
      origins.set(id, { kind, stack: stack.slice(1, 9).join('\n'), resource: new WeakRef(resource) });
    },
    destroy(id) {
      origins.delete(id);
    },
  }).enable();
}

export interface Snapshot {
  /** How many of each kind there are. */
  kinds: Map<string, number>;
  handles: Set<object>;
  traced: Set<number>;
}

export function snapshot(): Snapshot {
  const kinds = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    // Work that is about to be over by itself: a closing handle, a file being written, a callback already due.
    if (/^(CloseReq|FSReq|Immediate|WriteWrap|TickObject)/.test(kind)) continue;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  return { kinds, handles: new Set(process._getActiveHandles?.()), traced: new Set(origins.keys()) };
}

function describeHandle(handle: object): string | undefined {
  if (handle instanceof ChildProcess)
    return `process ${handle.pid}: ${handle.spawnargs.join(' ').slice(0, 200)}`;
  if (handle instanceof Server) return `server listening on ${JSON.stringify(handle.address())}`;
  if (handle instanceof Socket) {
    const { localAddress, localPort, remoteAddress, remotePort } = handle;
    return remoteAddress
      ? `socket ${localAddress}:${localPort} to ${remoteAddress}:${remotePort}`
      : 'socket or pipe';
  }
  return handle.constructor?.name;
}

/** A sentence for each thing that is alive now and was not at the time of the snapshot. */
export function aliveSince(before: Snapshot): string[] {
  const now = snapshot();
  const grown = [...now.kinds].filter(([kind, count]) => count > (before.kinds.get(kind) ?? 0));
  if (grown.length === 0) return [];
  const counts = grown.map(([kind, count]) => `${count - (before.kinds.get(kind) ?? 0)} × ${kind}`);
  const handles = [...now.handles].filter((handle) => !before.handles.has(handle)).map(describeHandle);
  const traces = [...origins]
    .filter(([id, { kind }]) => !before.traced.has(id) && grown.some(([name]) => name === kind))
    .filter(
      ([, { resource }]) => (resource.deref() as { hasRef?(): boolean } | undefined)?.hasRef?.() !== false,
    )
    .map(([, { kind, stack }]) => `${kind} made\n${stack}`);
  return [...counts, ...handles.filter((text) => text !== undefined), ...traces];
}
