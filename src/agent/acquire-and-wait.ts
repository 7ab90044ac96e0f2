import { setTimeout as delay } from 'node:timers/promises';
import type { Acquired, AcquireRequest, Contention, Granted, Halted } from './files-client.ts';

/** The caller would have had to wait longer than its timeout. Nothing was granted. */
export interface AcquireTimeout {
  outcome: 'timed out';
  contention: Contention;
}

export interface AcquireOptions {
  /** Called for each denial, before the wait for its retry. */
  onContended(contention: Contention): void;
  /** The limit of the total wait; without it the wait has no limit. */
  timeoutMs?: number;
  /** Ends the wait; its reason becomes the error. */
  signal?: AbortSignal;
  /** Waits on a monotonic clock. Tests inject their own. */
  wait?(ms: number, signal: AbortSignal | undefined): Promise<unknown>;
}

/** Covers the different speeds of two machines' clocks during a wait. */
const roundingMs = 1;

const waitMonotonic = (ms: number, signal: AbortSignal | undefined) =>
  delay(ms, undefined, signal && { signal });

/**
 * Requests files until the answer is final: granted or halted. After a denial the call waits for exactly the
 * time that the server returned, and then repeats the request once. No request is made in between. The server
 * decides whether a request counts as the retry. With several files, another file may be denied at the retry.
 * That is a new contention with its own wait and its own retry.
 */
export async function acquire(
  api: { acquire(request: AcquireRequest): Promise<Acquired> },
  request: AcquireRequest,
  { onContended, timeoutMs = Number.POSITIVE_INFINITY, signal, wait = waitMonotonic }: AcquireOptions,
): Promise<Granted | Halted | AcquireTimeout> {
  let timeoutLeftMs = timeoutMs;
  for (;;) {
    signal?.throwIfAborted();
    const answer = await api.acquire(request);
    if (answer.outcome !== 'contended') return answer;
    const { contention } = answer;
    const waitMs = contention.retry_after_ms + roundingMs;
    if (waitMs > timeoutLeftMs) return { outcome: 'timed out', contention };
    timeoutLeftMs -= waitMs;
    onContended(contention);
    await wait(waitMs, signal);
  }
}
