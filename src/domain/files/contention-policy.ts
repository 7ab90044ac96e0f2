/**
 * Contentions: requests for a file that another owner holds. The table is the only definition of the allowed
 * transitions. `decideContention` decides about one request, from the locked rows and the database's time.
 *
 *     (none) ──deny──▶ CONTENDED ──grant──▶ GRANTED
 *                       │     │  ╲            ▲
 *                     lapse  halt  ╲          │ grant: instructed
 *                       ▼     ▼     ╲         │
 *                    LAPSED          HALTED ──┘──abandon──▶ ABANDONED
 *                                    │   ▲
 *                                    └halt┘
 *
 * A contention does not depend on the liveness of its owner. It lapses 10 minutes after an unused `retry_at`.
 * Only an instruction ends a halt. An instruction for an owner that is not alive is stored, and applied at the
 * owner's next request.
 */
import type { FileEventType } from './file-lease.ts';

/** How long a denied request waits for its one retry. The contract's figure, and no setting. */
export const retryS = 180;
export const retryMs = retryS * 1000;
/** How long an unused retry stays open. */
export const unusedMs = 10 * 60 * 1000;

/** The states of a contention; the index is the number in the database. */
export const contentionStates = ['CONTENDED', 'HALTED', 'GRANTED', 'ABANDONED', 'LAPSED'] as const;
export type ContentionState = (typeof contentionStates)[number];

interface Transition {
  readonly from: readonly ContentionState[];
  readonly to: ContentionState;
  /** The event that records the transition. */
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

/** The phase of a contention when its owner sends a request. */
export type ContentionPhase = 'waiting' | 'due' | 'lapsed' | 'halted';

export function phaseOf(
  { state, retryAtMs }: { state: ContentionState; retryAtMs: number },
  nowMs: number,
): ContentionPhase {
  if (state === 'HALTED') return 'halted';
  if (nowMs < retryAtMs) return 'waiting';
  return nowMs < retryAtMs + unusedMs ? 'due' : 'lapsed';
}

/** One file of a request. */
export interface AskedFile {
  fileId: string;
  /** Another owner that is alive holds the file. */
  isBlocked: boolean;
  /** The requester's open contention for the file. */
  contention: Contention | undefined;
}

interface Contention {
  contentionId: string;
  state: ContentionState;
  retryAtMs: number;
  /** An instruction about the contention is stored and must be applied now. */
  isInstructed: boolean;
}

/**
 * The decision about a request, in order of precedence:
 * - a halted file, because only an operator can end a halt;
 * - a waiting file, because nothing can be granted before its retry is due; among several, the one that is
 *   due last;
 * - the holders of the files. They are not read for halted and waiting files.
 */
export type Decision =
  | { kind: 'grant' }
  /** The stored instruction for this contention must be applied before anything else is decided. */
  | { kind: 'apply'; contentionId: string }
  | { kind: 'answer'; contentionId: string; state: 'CONTENDED' | 'HALTED' }
  /** The one retry of these files was blocked. */
  | { kind: 'halt'; fileIds: string[] }
  /** These files are held by other owners and have no contention yet. */
  | { kind: 'deny'; fileIds: string[] };

/** Of two contentions denied in the same millisecond, the later one has the higher id. */
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
