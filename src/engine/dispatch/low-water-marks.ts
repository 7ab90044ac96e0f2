/**
 * Where in their lanes the jobs begin that wait.
 *
 * A job that is taken leaves its place in the queue's index, and where somebody keeps an old snapshot that place stays:
 * whoever begins at the front wades through all of them, at some fifty nanoseconds each, with every look. So lanes that jobs
 * are taken from are looked at now and then, and where that takes longer than `slowMs`, claims begin at a mark instead:
 * the place, for each priority, before which nobody was seen to wait. So does whoever only looks whether there is anything.
 * In a lane that is quick there is no mark, and nothing is different from what it would be without all this. What is said of lanes
 * holds for crowds as well: jobs of crowded lanes are found in the order of their crowd; see `store/sql/queue/crowds.ts`.
 *
 * A new job gets a place behind all marks. But a transaction may commit a while after it was given its places, and so a
 * mark counts only when it is `marginMs` old. And a job that comes back gets its old place: it is found by a look that
 * begins at the front, of which there is one a second, or so many that they take `1 / restShare` of the time. What is left
 * over before a mark is found by whoever finds too little behind it, because they look once more from the front. A mark
 * can therefore let a job that came back wait for its old place in line, for that long, and lose none.
 *
 * There is a timer only while jobs are taken. `stop` ends it.
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
/** A lane that nothing was taken from for so long is not looked at any more, and has no mark. */
const unusedMs = 5_000;
const lanesMax = 100;

interface LaneCursor {
  spot: HeadPosition;
  usedAtMs: number;
  isSlow: boolean;
  /** By priority: nobody waits before this place. */
  from: number[];
  /** What was seen since, and counts when it is old enough. */
  next: { from: number[]; atMs: number } | undefined;
  /** When it is looked at from the front again. */
  frontAtMs: number;
}

export interface HeadMarksOptions {
  database: Database;
  log: Log;
  /** Only rises. */
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

  /** Jobs were taken from these lanes or crowds. The embedded database has one session, and so no older snapshot. */
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

  /** Looks at the lanes that are in use. */
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
        // Marks that nobody renews say less and less, and nothing that is wrong.
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

/** `last` is the last place that anybody had been given; where nobody waits, nobody waits before it. */
function noteLaneHeads(lane: LaneCursor, heads: readonly ProbedHead[], last: number, nowMs: number): void {
  const seen = heads.map(({ seq }) => seq ?? last);
  if (nowMs >= lane.frontAtMs) {
    const tookMs = heads.reduce((sum, head) => sum + head.tookMs, 0);
    lane.frontAtMs = nowMs + Math.max(frontEveryMs, restShare * tookMs);
    lane.isSlow = tookMs >= slowMs;
    // Somebody has come back.
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
