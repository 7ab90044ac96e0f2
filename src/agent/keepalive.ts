import { ServerError } from '../client/http-client.ts';
import { span } from '../domain/time.ts';
import type { FileLease, FilesClient } from './files-client.ts';
import { shown } from './messages.ts';

/** Less than a third of the 60 s that an owner lives after each heartbeat. */
export const heartbeatMs = 18_000;
/** The interval where no server answers. */
export const againMs = 2_000;
/** The interval at which the clocks are compared, and the difference that is more than a small correction. */
const lookMs = 1_000;
const partedMs = 5_000;

type KeepaliveApi = Pick<FilesClient, 'url' | 'activity' | 'heartbeat'>;

export interface Loss {
  why: string;
  /** The server reported the loss. Otherwise the server was silent until the leases had to expire. */
  isCertain: boolean;
}

export interface KeepaliveEvents {
  /**
   * The leases are not reliable any more. Called once for a certain loss, and once for each period without an
   * answer.
   */
  onLost(loss: Loss): void;
  /** A message for people. */
  onNotice(what: string): void;
}

export interface KeepaliveOptions {
  /** Each heartbeat counts as activity: for owners that another process may report as stopped. */
  isAtWork?: boolean;
  /** How much earlier a silent server is reported, so that the work on the files ends before their expiry. */
  leadMs?: number;
  /** The time of day. Tests inject their own. */
  wallClock?(): number;
}

/**
 * Keeps an owner alive from `start` to `stop`, which are idempotent, and watches the leases that `hold`
 * names.
 *
 * - It sends a heartbeat every 18 s. A heartbeat without an answer is repeated every 2 s, and reported once.
 * - A loss is certain when the server reports it; then the keepalive stops.
 * - A loss is uncertain when the server has not answered until the owner must have died. That time is counted
 *   on a monotonic clock from the sending of the last answered heartbeat, so never later than the server
 *   counts it. The heartbeats continue, because the server may return and report that the owner is alive.
 * - The monotonic clock stops while the machine sleeps, and the time of day does not. When the two diverge,
 *   the keepalive sends a heartbeat at once.
 */
export class Keepalive {
  readonly #api: KeepaliveApi;
  readonly #ownerId: string;
  readonly #on: KeepaliveEvents;
  readonly #isAtWork: boolean;
  readonly #leadMs: number;
  readonly #wallClock: () => number;
  #held: readonly FileLease[] = [];
  #heartbeat: NodeJS.Timeout | undefined;
  #end: NodeJS.Timeout | undefined;
  #checkClocks: NodeJS.Timeout | undefined;
  #isTroubled = false;
  #isRunning = false;
  #wasStarted = false;

  constructor(
    api: KeepaliveApi,
    ownerId: string,
    on: KeepaliveEvents,
    { isAtWork = false, leadMs = 0, wallClock = Date.now }: KeepaliveOptions = {},
  ) {
    this.#api = api;
    this.#ownerId = ownerId;
    this.#on = on;
    this.#isAtWork = isAtWork;
    this.#leadMs = leadMs;
    this.#wallClock = wallClock;
  }

  /** Whether the server may know the owner. */
  get wasStarted(): boolean {
    return this.#wasStarted;
  }

  start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#wasStarted = true;
    this.#schedule(heartbeatMs);
    this.#watchClocks();
  }

  /** Watches these leases from now on; `askedAtMs` is the `performance.now()` of their request. */
  hold(leases: readonly FileLease[], askedAtMs: number): void {
    this.#held = [...this.#held, ...leases];
    const [lease] = leases;
    if (lease) this.#holdsFor(Date.parse(lease.expires_at) - Date.parse(lease.last_heartbeat_at), askedAtMs);
  }

  stop(): void {
    this.#isRunning = false;
    this.#held = [];
    clearTimeout(this.#heartbeat);
    clearTimeout(this.#end);
    clearInterval(this.#checkClocks);
  }

  /** Sends a heartbeat now. */
  async heartbeat(): Promise<void> {
    clearTimeout(this.#heartbeat);
    const sentAtMs = performance.now();
    try {
      if (this.#isAtWork) await this.#api.activity(this.#ownerId);
      const { ttl_remaining_ms, lost_files } = await this.#api.heartbeat(this.#ownerId);
      if (!this.#isRunning) return;
      if (this.#isTroubled) this.#on.onNotice('the server is there again');
      this.#isTroubled = false;
      this.#holdsFor(ttl_remaining_ms, sentAtMs);
      const lost = lost_files.find((file) => this.#held.some((held) => isSame(file, held)));
      if (lost)
        this.#lose(`${shown(lost.path)} was taken away at ${shown(lost.lost_at)}: ${shown(lost.reason)}`);
      else this.#schedule(heartbeatMs);
    } catch (error) {
      if (this.#isRunning) this.#fail(error);
    }
  }

  #schedule(ms: number): void {
    clearTimeout(this.#heartbeat);
    if (this.#isRunning) this.#heartbeat = setTimeout(() => void this.heartbeat(), ms);
  }

  #holdsFor(ms: number, sinceMs: number): void {
    clearTimeout(this.#end);
    if (!this.#isRunning) return;
    const silentMs = Math.max(0, ms - this.#leadMs);
    const why = `the server at ${this.#api.url} has not answered for ${span(silentMs)}`;
    const doubt = () => {
      if (this.#held.length > 0) this.#on.onLost({ why, isCertain: false });
    };
    this.#end = setTimeout(doubt, sinceMs + silentMs - performance.now());
  }

  #watchClocks(): void {
    const apartMs = () => this.#wallClock() - performance.now();
    let wereMs = apartMs();
    this.#checkClocks = setInterval(() => {
      const areMs = apartMs();
      const haveParted = Math.abs(areMs - wereMs) > partedMs;
      wereMs = areMs;
      if (haveParted) void this.heartbeat();
    }, lookMs);
  }

  #fail(error: unknown): void {
    if (!(error instanceof ServerError)) throw error;
    if (!error.isUnreachable) {
      this.#lose(error.message);
      return;
    }
    if (!this.#isTroubled) this.#on.onNotice(`no heartbeat gets through, trying again: ${error.message}`);
    this.#isTroubled = true;
    this.#schedule(againMs);
  }

  #lose(why: string): void {
    const isHolding = this.#held.length > 0;
    this.stop();
    if (isHolding) this.#on.onLost({ why, isCertain: true });
  }
}

const isSame = (a: { repository: string; path: string; fence: number }, b: FileLease): boolean =>
  a.repository === b.repository && a.path === b.path && a.fence === b.fence;
