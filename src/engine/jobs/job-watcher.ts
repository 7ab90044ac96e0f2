/**
 * Follows jobs for `WatchJob`: what a job is and what happened to it, at once and after every change, until it has ended.
 *
 * Guarantees: a change that this server or the notify channel reports is read at once. A change that no notification
 * reported is found by the notifier's sweep: one statement compares the versions of all watched jobs, so that
 * thousands of watchers of unchanged jobs cost one index lookup each, and no read of a history.
 * Bounds: `WatchLimiter` bounds the streams that are open and those that read at the same time.
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

/** A job as it stands, and what happened since the last look. */
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

  async *watch(
    jobId: string,
    afterEventId: string | null,
    { peer, signal }: Caller,
  ): AsyncGenerator<JobEventsPage> {
    const stopping = this.#stopping.signal;
    const until = signal ? AbortSignal.any([signal, stopping]) : stopping;
    const leave = this.#limiter.enter();
    const changes = new Changes(until);
    const id = jobId.toLowerCase();
    const stopWaiting = this.#context.notifier.waitForJob(id, changes.report);
    try {
      yield* this.#follow(id, afterEventId ?? '0', { peer, signal: until }, changes);
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
        // Read before the job is: a change in between makes the next comparison fail, and is not missed.
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

  /** What happened between the two reads is sent with what became of the job by it. */
  async #readWhole(jobId: string, cursor: string, caller: Caller): Promise<JobEventsPage> {
    const news = await this.#read(jobId, cursor, caller);
    return agree(news) ? news : this.#read(jobId, cursor, caller);
  }
}

/** Whether the last event is what made the job what it is. */
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

/** What one watcher has been notified of and has not looked at yet. A notified change outweighs a sweep. */
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

  /** Settles when there is something to take, or the watcher has gone. */
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
