import { ServerError } from '../client/http-client.ts';
import type { FileLease, FilesApi } from './files-client.ts';
import { duration, shown } from './messages.ts';

/** Less than a third of the minute that an owner lives after each heartbeat. */
export const heartbeatMs = 18_000;
/** Where no server answers. */
export const againMs = 2_000;
/** How often the clocks are compared, and what is more than setting one right a little. */
const lookMs = 1_000;
const partedMs = 5_000;

type KeepaliveApi = Pick<FilesApi, 'url' | 'activity' | 'heartbeat'>;

export interface Loss {
  why: string;
  /** The server says so. Otherwise it was silent for as long as the files were good for. */
  isCertain: boolean;
}

export interface KeepaliveEvents {
  /** The files cannot be counted on any more; told once for certain, and once for each time that nobody answers. */
  onLost(loss: Loss): void;
  /** Something that people should know of. */
  onNotice(what: string): void;
}

export interface KeepaliveOptions {
  /** Each heartbeat is to count as activity: for owners that somebody else may call stopped. */
  isAtWork?: boolean;
  /** So much earlier silence is told, to be done with the files when they are lost. */
  leadMs?: number;
  /** The time of day. Tests put their own here. */
  wallClock?(): number;
}

/**
 * Keeps an owner alive from `start` to `stop`, both of which may be called again, and watches over what `hold` names.
 *
 * A heartbeat goes out every 18 s. One that gets no answer is repeated every 2 s, and that is told once. The files are
 * lost when the server says so, which is the end of it, and perhaps when it was not heard from until the moment at which
 * the owner must have died: counted on a monotonic clock from when the last heartbeat that was answered was sent, so
 * never later than the server. After that it is asked still, because it may come back and know better.
 *
 * The monotonic clock stands still while the machine sleeps, and the time of day does not: where the two have parted, a
 * heartbeat goes out at once.
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

  /** The server has known of the owner. */
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

  /** From now on these are watched; they were asked for at a time of `performance.now()`. */
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

  /** One heartbeat, now. */
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
    const why = `the server at ${this.#api.url} has not been heard from for ${duration(silentMs)}`;
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
