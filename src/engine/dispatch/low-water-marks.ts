/**
 * Low-water marks: the position in each lane before which no job waits.
 *
 * Purpose: a taken job leaves a dead entry in the queue's index. While another session keeps an old snapshot,
 * the entry cannot be removed. A query that begins at the front then reads all dead entries, at about 50 ns
 * each. Lanes that jobs are taken from are therefore probed regularly. If a probe takes longer than `slowMs`,
 * claims and availability probes begin at a mark for each priority instead. A fast lane has no mark and
 * behaves as if marks did not exist. The same holds for crowds: jobs of crowded lanes are found in the order
 * of their crowd; see `store/sql/queue/crowds.ts`.
 *
 * Guarantees: a mark may delay a requeued job, but loses none.
 * - A new job gets a position behind all marks. Its transaction may commit some time after the position was
 *   assigned, so a mark takes effect only when it is `marginMs` old.
 * - A requeued job gets its old position. A probe from the front finds it. There is one probe from the front
 *   a second, or fewer, so that they take at most `1 / restShare` of the time.
 * - A claim that finds too few jobs behind a mark searches again from the front.
 *
 * Lifecycle: the timer runs only while jobs are taken. `stop` ends it.
 */
import { priorities } from '../../domain/jobs/job.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import type { HeadMarks, TakenFrom } from '../../store/sql/queue/heads.ts';
import {
  type HeadPosition,
  type Probe,
  type ProbedHead,
  probeHeads,
} from '../../store/sql/queue/probe-heads.ts';

const tickMs = 250;
const marginMs = 500;
const slowMs = 0.5;
const frontEveryMs = 1_000;
const restShare = 20;
/** A lane from which no job was taken for this long is not probed any more, and has no mark. */
const unusedMs = 5_000;
const lanesMax = 100;

interface LaneCursor {
  spot: HeadPosition;
  usedAtMs: number;
  isSlow: boolean;
  /** By priority: no job waits before this position. */
  from: number[];
  /** The positions of the last probe, which take effect when they are old enough. */
  next: { from: number[]; atMs: number } | undefined;
  /** When the next probe from the front is due. */
  frontAtMs: number;
}

export interface HeadMarksOptions {
  database: Database;
  log: Log;
  /** Monotonic. */
  clockMs?: () => number;
}

export class LowWaterMarks implements Service, HeadMarks {
  readonly #options: HeadMarksOptions;
  readonly #clockMs: () => number;
  /** Lanes and crowds, by `nameOf`. */
  readonly #lanes = new Map<number | string, LaneCursor>();
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<void> | undefined;
  #running = false;
  #json: string | null = null;

  constructor(options: HeadMarksOptions) {
    this.#options = options;
    this.#clockMs = options.clockMs ?? (() => performance.now());
  }

  get json(): string | null {
    return this.#json;
  }

  /**
   * Records that jobs were taken from these lanes or crowds. The embedded database has one session, and so no
   * older snapshot.
   */
  advance(taken: readonly TakenFrom[]): void {
    if (this.#options.database.engine === 'embedded') return;
    const usedAtMs = this.#clockMs();
    for (const from of taken) {
      const name = nameOf(from);
      const lane = this.#lanes.get(name);
      if (lane) lane.usedAtMs = usedAtMs;
      else if (this.#lanes.size < lanesMax)
        this.#lanes.set(name, {
          spot: from.crowd === null ? { laneId: from.lane_id } : { crowd: from.crowd },
          usedAtMs,
          isSlow: false,
          from: front(),
          next: undefined,
          frontAtMs: usedAtMs,
        });
    }
    if (this.#running && this.#lanes.size > 0) this.#timer ??= setInterval(() => this.#tick(), tickMs);
  }

  start(): void {
    this.#running = true;
  }

  async stop(): Promise<void> {
    this.#running = false;
    this.#rest();
    await this.#round;
  }

  /** Probes the lanes that are in use. */
  async runOnce(): Promise<void> {
    const nowMs = this.#clockMs();
    for (const [name, { usedAtMs }] of this.#lanes) if (nowMs - usedAtMs > unusedMs) this.#lanes.delete(name);
    const due = [...this.#lanes].filter(([, lane]) => lane.isSlow || nowMs >= lane.frontAtMs);
    if (due.length > 0) {
      const probes = due.flatMap(([, lane]) => probesOf(lane, nowMs));
      const { last, heads } = await probeHeads(this.#options.database, probes);
      for (const [i, [, lane]] of due.entries())
        noteLaneHeads(lane, heads.slice(i * levels, (i + 1) * levels), last, nowMs);
    }
    this.#json = jsonOf(this.#lanes);
    if (this.#lanes.size === 0) this.#rest();
  }

  #tick(): void {
    this.#round ??= this.runOnce()
      .catch((error: unknown) => {
        // Marks that are not refreshed become less useful, but never wrong.
        this.#options.log.warn('the heads of the queue could not be looked at', { error });
      })
      .finally(() => {
        this.#round = undefined;
      });
  }

  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

const levels = priorities.length;
const front = (): number[] => priorities.map(() => 0);

const nameOf = ({ lane_id, crowd }: TakenFrom): number | string => crowd ?? lane_id;

const probesOf = ({ spot, frontAtMs, from }: LaneCursor, nowMs: number): Probe[] =>
  priorities.map((_, priority) => ({
    spot,
    priority,
    fromSeq: nowMs >= frontAtMs ? 0 : (from[priority] as number),
  }));

/**
 * `last` is the last position assigned so far. If no job waits in a lane, none waits before that position.
 */
function noteLaneHeads(lane: LaneCursor, heads: readonly ProbedHead[], last: number, nowMs: number): void {
  const seen = heads.map(({ seq }) => seq ?? last);
  if (nowMs >= lane.frontAtMs) {
    const tookMs = heads.reduce((sum, head) => sum + head.tookMs, 0);
    lane.frontAtMs = nowMs + Math.max(frontEveryMs, restShare * tookMs);
    lane.isSlow = tookMs >= slowMs;
    // A job before the mark was requeued.
    lane.from = lane.from.map((from, level) => Math.min(from, seen[level] as number));
  }
  if (!lane.isSlow) {
    lane.from = front();
    lane.next = undefined;
    return;
  }
  if (lane.next && nowMs - lane.next.atMs < marginMs) return;
  if (lane.next)
    lane.from = lane.next.from.map((from, level) =>
      Math.max(lane.from[level] as number, Math.min(from, seen[level] as number)),
    );
  lane.next = { from: seen, atMs: nowMs };
}

function jsonOf(lanes: ReadonlyMap<unknown, LaneCursor>): string | null {
  const marked = [...lanes].filter(([, lane]) => lane.isSlow && lane.from.some((from) => from > 0));
  if (marked.length === 0) return null;
  return JSON.stringify(
    marked.map(([, { spot, from }]) =>
      'laneId' in spot ? { lane_id: spot.laneId, from_seq: from } : { crowd: spot.crowd, from_seq: from },
    ),
  );
}
