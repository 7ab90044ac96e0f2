import { setTimeout as delay } from 'node:timers/promises';
import type { Acquired, AcquireRequest, Contention, Granted, Halted } from './files-client.ts';

/** The gate would have had to wait longer than it may. Nothing was granted. */
export interface AcquireTimeout {
  outcome: 'out of patience';
  contention: Contention;
}

export interface AcquireOptions {
  /** Is told of each denial, before it is waited out. */
  onContended(contention: Contention): void;
  /** How long all the waiting may take; for ever where left out. */
  timeoutMs?: number;
  /** Ends the waiting, with its reason as the error. */
  signal?: AbortSignal;
  /** Waits on a clock that is never set. Tests put their own here. */
  wait?(ms: number, signal: AbortSignal | undefined): Promise<unknown>;
}

/** More than enough for the clocks of two machines, which do not count a minute alike. */
const roundingMs = 1;

const waitMonotonic = (ms: number, signal: AbortSignal | undefined) =>
  delay(ms, undefined, signal && { signal });

/**
 * Asks for files until the answer stands: they are granted, or halted. A denial is waited out for exactly as long as
 * the server says, and then asked for once; whether that one was the retry is for the server to say, and no request is
 * made in between. With several files another one may be denied at the retry, which is another contention with a
 * waiting time and a retry of its own.
 */
export async function acquire(
  api: { acquire(request: AcquireRequest): Promise<Acquired> },
  request: AcquireRequest,
  { onContended, timeoutMs = Number.POSITIVE_INFINITY, signal, wait = waitMonotonic }: AcquireOptions,
): Promise<Granted | Halted | AcquireTimeout> {
  let patienceLeftMs = timeoutMs;
  for (;;) {
    signal?.throwIfAborted();
    const answer = await api.acquire(request);
    if (answer.outcome !== 'contended') return answer;
    const { contention } = answer;
    const waitMs = contention.retry_after_ms + roundingMs;
    if (waitMs > patienceLeftMs) return { outcome: 'out of patience', contention };
    patienceLeftMs -= waitMs;
    onContended(contention);
    await wait(waitMs, signal);
  }
}
