/**
 * Contentions: what becomes of a request for a file that somebody else holds. The table is the only place that says what
 * may follow what; `judge` decides about one request, from what is locked and the database's time.
 *
 *     (none) ──deny──▶ CONTENDED ──grant──▶ GRANTED
 *                       │     │  ╲            ▲
 *                     lapse  halt  ╲          │ grant: instructed
 *                       ▼     ▼     ╲         │
 *                    LAPSED          HALTED ──┘──abandon──▶ ABANDONED
 *                                    │   ▲
 *                                    └halt┘
 *
 * A contention does not depend on the liveness of its owner. It lapses 10 minutes after a `retry_at` that was not used. A
 * halt ends only by an instruction. One for an owner that is not alive is kept, and applied at the owner's next request.
 */
import type { FileEventType } from './file-lease.ts';

/** How long a denied request waits for its one retry. The contract's figure, and no setting. */
export const retryS = 180;
export const retryMs = retryS * 1000;
/** How long a retry that was not used stays open. */
export const unusedMs = 10 * 60 * 1000;

/** The states of a contention; the index is the number in the database. */
export const contentionStates = ['CONTENDED', 'HALTED', 'GRANTED', 'ABANDONED', 'LAPSED'] as const;
export type ContentionState = (typeof contentionStates)[number];

interface Transition {
  readonly from: readonly ContentionState[];
  readonly to: ContentionState;
  /** The event that tells of it. */
  readonly event: FileEventType;
}

export type ContentionVerb = 'deny' | 'grant' | 'halt' | 'abandon' | 'lapse';

const open = ['CONTENDED', 'HALTED'] as const;

export const contentionTransitions: Record<ContentionVerb, Transition> = {
  deny: { from: [], to: 'CONTENDED', event: 'FILE_CONTENDED' },
  grant: { from: open, to: 'GRANTED', event: 'FILE_GRANTED' },
  halt: { from: open, to: 'HALTED', event: 'FILE_HALTED' },
  abandon: { from: ['HALTED'], to: 'ABANDONED', event: 'FILE_ABANDONED' },
  lapse: { from: ['CONTENDED'], to: 'LAPSED', event: 'FILE_LAPSED' },
};

export const contentionStateNumber = (state: ContentionState): number => contentionStates.indexOf(state);
export const isOpen = (state: ContentionState): boolean => (open as readonly string[]).includes(state);

/** Where a contention stands when its owner asks. */
export type ContentionPhase = 'waiting' | 'due' | 'lapsed' | 'halted';

export function phaseOf(
  { state, retryAtMs }: { state: ContentionState; retryAtMs: number },
  nowMs: number,
): ContentionPhase {
  if (state === 'HALTED') return 'halted';
  if (nowMs < retryAtMs) return 'waiting';
  return nowMs < retryAtMs + unusedMs ? 'due' : 'lapsed';
}

/** One of the files that a request is for. */
export interface AskedFile {
  fileId: string;
  /** Somebody else who lives holds it. */
  isBlocked: boolean;
  /** The asker's contention for it, where one is open. */
  contention: Contention | undefined;
}

interface Contention {
  contentionId: string;
  state: ContentionState;
  retryAtMs: number;
  /** An instruction about it is kept, and has to be applied now. */
  isInstructed: boolean;
}

/**
 * What is decided about a request. A halted file comes before everything, because only an operator can help; then one that
 * waits, because nothing can be granted before it is due; the one that waits longest, where there are several. What
 * has halted or waits is answered without a look at who holds what.
 */
export type Decision =
  | { kind: 'grant' }
  /** The instruction that is kept for this contention has to be applied before anything is decided. */
  | { kind: 'apply'; contentionId: string }
  | { kind: 'answer'; contentionId: string; state: 'CONTENDED' | 'HALTED' }
  /** These files' one retry was blocked. */
  | { kind: 'halt'; fileIds: string[] }
  /** These files were not to be had, and have no contention yet. */
  | { kind: 'deny'; fileIds: string[] };

/** Of two that were denied in the same millisecond the one that was denied later has the higher id. */
const isLater = (a: Contention, b: Contention): boolean =>
  a.retryAtMs === b.retryAtMs ? a.contentionId > b.contentionId : a.retryAtMs > b.retryAtMs;

export function decideContention(files: readonly AskedFile[], nowMs: number): Decision {
  const halts = files.filter(({ contention }) => contention?.state === 'HALTED');
  const instructed = halts.find(({ contention }) => contention?.isInstructed);
  if (instructed?.contention) return { kind: 'apply', contentionId: instructed.contention.contentionId };
  const [halted] = halts;
  if (halted?.contention)
    return { kind: 'answer', contentionId: halted.contention.contentionId, state: 'HALTED' };
  let waiting: AskedFile['contention'];
  for (const { contention } of files) {
    if (!contention || phaseOf(contention, nowMs) !== 'waiting') continue;
    if (!waiting || isLater(contention, waiting)) waiting = contention;
  }
  if (waiting) return { kind: 'answer', contentionId: waiting.contentionId, state: 'CONTENDED' };
  const blocked = files.filter(({ isBlocked }) => isBlocked);
  if (blocked.length === 0) return { kind: 'grant' };
  const due = blocked.filter(({ contention }) => contention && phaseOf(contention, nowMs) === 'due');
  return due.length > 0
    ? { kind: 'halt', fileIds: due.map(({ fileId }) => fileId) }
    : { kind: 'deny', fileIds: blocked.map(({ fileId }) => fileId) };
}
