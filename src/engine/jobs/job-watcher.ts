/**
 * Follows jobs for `WatchJob`: sends the job and its events, at once and after every change, until it has
 * ended.
 *
 * Guarantees:
 * - A change that this server or the notify channel reports is read at once.
 * - A change that no notification reported is found by the notifier's sweep. One statement compares the
 *   versions of all watched jobs. Thousands of watchers of unchanged jobs cost one index lookup each, and no
 *   read of a history.
 *
 * Bounds: `WatchLimiter` limits the open streams, and those that read at the same time.
 */
import { DomainError } from '../../domain/errors.ts';
import type { JobEvent, JobWithResult } from '../../domain/jobs/job.ts';
import { isTerminal } from '../../domain/jobs/state-machine.ts';
import { limits } from '../../domain/limits.ts';
import { abandoned, Batcher } from '../../lib/async/batcher.ts';
import type { Database } from '../../store/database.ts';
import { liveVersions } from '../../store/sql/jobs/versions.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import type { WatchLimiter } from './watch-limiter.ts';

/** A job, and its events since the last read. */
export interface JobEventsPage extends JobWithResult {
  events: JobEvent[];
}

/** Reads the job, and then its events after the cursor. */
export type ReadJobEvents = (jobId: string, cursor: string, caller: Caller) => Promise<JobEventsPage>;

/** Jobs that have ended share this version: their end is found once. */
const noVersion = 'ended';

export class JobWatcher {
  readonly #context: EngineContext;
  readonly #read: ReadJobEvents;
  readonly #limiter: WatchLimiter;
  readonly #stopping = new AbortController();
  readonly #versions: Batcher<string, string>;

  constructor(context: EngineContext, read: ReadJobEvents) {
    this.#context = context;
    this.#read = read;
    this.#limiter = context.watchLimiter;
    this.#versions = new Batcher({
      flush: (jobIds, signal) => readVersions(context.database, jobIds, signal),
      sizeMax: 1_000,
      waitingMax: limits.watchStreams,
    });
  }

  /** Ends the streams, so that a server that stops need not wait for them. */
  stop(): void {
    this.#stopping.abort(new DomainError('unavailable', 'the server is shutting down'));
  }

  async close(): Promise<void> {
    this.stop();
    await this.#versions.close();
  }

  async *watch(jobId: string, afterEventId: string | null, caller: Caller): AsyncGenerator<JobEventsPage> {
    const { signal } = caller;
    const stopping = this.#stopping.signal;
    const until = signal ? AbortSignal.any([signal, stopping]) : stopping;
    const leave = this.#limiter.enter();
    const changes = new Changes(until);
    const id = jobId.toLowerCase();
    const stopWaiting = this.#context.notifier.waitForJob(id, changes.report);
    try {
      yield* this.#follow(id, afterEventId ?? '0', { ...caller, signal: until }, changes);
    } finally {
      stopWaiting();
      changes.close();
      leave();
    }
  }

  async *#follow(
    jobId: string,
    afterEventId: string,
    caller: Caller & { signal: AbortSignal },
    changes: Changes,
  ): AsyncGenerator<JobEventsPage> {
    let cursor = afterEventId;
    let sentAtMs = Number.NaN;
    let version: string | undefined;
    while (!caller.signal.aborted) {
      const isSweep = changes.take() === 'sweep';
      if (isSweep) {
        const now = await this.#versions.run(jobId, caller.signal);
        const isSame = now === version;
        // Read before the job: a change in between makes the next comparison fail, and is not missed.
        version = now;
        if (isSame) {
          await changes.next();
          continue;
        }
      }
      const news = await this.#limiter.read(() => this.#readWhole(jobId, cursor, caller), caller.signal);
      const { job, events } = news;
      cursor = events.at(-1)?.eventId ?? cursor;
      const more = events.length === limits.pageRows;
      const isOver = isTerminal(job.state) && !more;
      const isFirst = Number.isNaN(sentAtMs);
      if (isFirst || isOver || job.updatedAtMs !== sentAtMs || events.length > 0)
        yield { ...news, result: isOver ? news.result : null };
      sentAtMs = job.updatedAtMs;
      if (isOver) return;
      if (!more) await changes.next();
    }
    throw abandoned(caller.signal);
  }

  /** Events between the two reads are sent with the state that they led to. */
  async #readWhole(jobId: string, cursor: string, caller: Caller): Promise<JobEventsPage> {
    const news = await this.#read(jobId, cursor, caller);
    return agree(news) ? news : this.#read(jobId, cursor, caller);
  }
}

/** Whether the last event led to the job's state. */
const agree = ({ job, events }: JobEventsPage): boolean =>
  events.length === 0 || events.length === limits.pageRows || events.at(-1)?.data.to === job.state;

async function readVersions(
  database: Database,
  jobIds: readonly string[],
  signal: AbortSignal | undefined,
): Promise<string[]> {
  const versions = await liveVersions(database, [...new Set(jobIds)], signal);
  return jobIds.map((jobId) => versions.get(jobId) ?? noVersion);
}

/** A watcher's pending notifications. A notified change outweighs a sweep. */
class Changes {
  readonly #until: AbortSignal;
  #pending: 'change' | 'sweep' | undefined = 'change';
  #wake: (() => void) | undefined;

  constructor(until: AbortSignal) {
    this.#until = until;
    until.addEventListener('abort', this.#ring, { once: true });
  }

  readonly report = (isSweep: boolean): void => {
    if (this.#pending !== 'change') this.#pending = isSweep ? 'sweep' : 'change';
    this.#ring();
  };

  readonly #ring = (): void => {
    this.#wake?.();
  };

  take(): 'change' | 'sweep' | undefined {
    const taken = this.#pending;
    this.#pending = undefined;
    return taken;
  }

  /** Settles when a notification is pending, or the watcher has disconnected. */
  async next(): Promise<void> {
    if (this.#pending !== undefined || this.#until.aborted) return;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
  }

  close(): void {
    this.#until.removeEventListener('abort', this.#ring);
  }
}
