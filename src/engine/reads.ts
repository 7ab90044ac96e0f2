import type { ListJobEvents, ListJobs } from '../domain/commands.ts';
import { DomainError, invalid, jobNotFound, printable } from '../domain/errors.ts';
import type { Job, JobEvent, JobWithResult } from '../domain/job.ts';
import { limits } from '../domain/limits.ts';
import { isTerminal, type State } from '../domain/machine.ts';
import { instantMs } from '../domain/parse.ts';
import { listEvents } from '../store/statements/list-events.ts';
import { listJobs, readJobs } from '../store/statements/read-jobs.ts';
import { type StreamDepth, streamDepths } from '../store/statements/streams.ts';
import { abandoned } from './batcher.ts';
import type { Caller, EngineContext } from './context.ts';
import { isUuid } from './ids.ts';

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** A job as it stands, and what happened since the last look. */
export interface JobNews extends JobWithResult {
  events: JobEvent[];
}

/** Answers questions about jobs. A query ends with its caller's patience. */
export class Reader {
  readonly #context: EngineContext;
  readonly #stopping = new AbortController();

  constructor(context: EngineContext) {
    this.#context = context;
  }

  /** Ends whoever follows a job, so that a server that stops need not wait for them. */
  stop(): void {
    this.#stopping.abort(new DomainError('unavailable', 'the server is shutting down'));
  }

  async get(jobId: string, { signal }: Caller): Promise<JobWithResult> {
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    const found = (await readJobs(this.#context.database, [jobId], signal)).get(jobId.toLowerCase());
    if (!found) throw jobNotFound(jobId);
    return found;
  }

  async list(command: ListJobs, { signal }: Caller): Promise<Page<Job>> {
    const limit = command.limit ?? limits.pageRowsDefault;
    const cursor = command.cursor || null;
    if (cursor !== null && !isUuid(cursor))
      throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
    const { jobs, found } = await listJobs(
      this.#context.database,
      {
        states: withLeased(command.states ?? []),
        addonId: command.addon_id ?? null,
        jobType: command.job_type ?? null,
        stream: command.stream ?? null,
        deadLettered: command.dead_lettered ?? null,
        createdAfterMs:
          command.created_after == null ? null : instantMs(command.created_after, 'created_after'),
        createdBeforeMs:
          command.created_before == null ? null : instantMs(command.created_before, 'created_before'),
        cursor,
        limit: limit + 1,
      },
      signal,
    );
    const items = jobs.slice(0, limit);
    return { items, nextCursor: found > items.length ? (items.at(-1)?.jobId ?? null) : null };
  }

  /** All streams that ever had a job, with what is in them. */
  streams(stream: string | null, { signal }: Caller): Promise<StreamDepth[]> {
    return streamDepths(this.#context.database, stream, signal);
  }

  async events(jobId: string, command: ListJobEvents, caller: Caller): Promise<Page<JobEvent>> {
    const limit = command.limit ?? limits.pageRows;
    const cursor = command.cursor || '0';
    if (!/^\d{1,18}$/.test(cursor)) throw invalid('cursor', `is not one of ours: ${printable(cursor)}`);
    const found = await this.get(jobId, caller);
    const events = await listEvents(this.#context.database, found, cursor, limit + 1, caller.signal);
    const items = events.slice(0, limit);
    return { items, nextCursor: events.length > limit ? (items.at(-1)?.eventId ?? null) : null };
  }

  /** The job is read first: once it has ended, its history is complete when it is read after that. */
  async #look(jobId: string, cursor: string, caller: Caller): Promise<Look> {
    const found = await this.get(jobId, caller);
    const { database } = this.#context;
    return { found, events: await listEvents(database, found, cursor, limits.pageRows, caller.signal) };
  }

  /**
   * Follows a job until it has ended: first what stands there, then every change. Looks again whenever the waker
   * says so, so that a change of another server is told as well.
   */
  async *watch(
    jobId: string,
    afterEventId: string | null,
    { peer, signal }: Caller,
  ): AsyncGenerator<JobNews> {
    const stopping = this.#stopping.signal;
    const until = signal ? AbortSignal.any([signal, stopping]) : stopping;
    const caller: Caller = { peer, signal: until };
    let cursor = afterEventId ?? '0';
    let toldAtMs = Number.NaN;
    let wake: (() => void) | undefined;
    let woken = true;
    const ring = () => {
      woken = true;
      wake?.();
    };
    const stopWaiting = this.#context.waker.waitForJob(jobId.toLowerCase(), ring);
    until.addEventListener('abort', ring, { once: true });
    try {
      for (let first = true; !until.aborted; first = false) {
        woken = false;
        let { found, events } = await this.#look(jobId, cursor, caller);
        // What happened between the two reads is told with what became of the job by it.
        if (!agree(found, events)) ({ found, events } = await this.#look(jobId, cursor, caller));
        cursor = events.at(-1)?.eventId ?? cursor;
        const more = events.length === limits.pageRows;
        const over = isTerminal(found.job.state) && !more;
        const changed = found.job.updatedAtMs !== toldAtMs;
        toldAtMs = found.job.updatedAtMs;
        if (first || over || changed || events.length > 0)
          yield { ...found, result: over ? found.result : null, events };
        if (over) return;
        if (more || woken) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
      }
      throw abandoned(until);
    } finally {
      stopWaiting();
      until.removeEventListener('abort', ring);
    }
  }
}

interface Look {
  found: JobWithResult;
  events: JobEvent[];
}

/** Whether the last that happened is what made the job what it is. */
const agree = ({ job }: JobWithResult, events: readonly JobEvent[]): boolean =>
  events.length === 0 || events.length === limits.pageRows || events.at(-1)?.data.to === job.state;

/** The contracts know no LEASED: whoever asks for RUNNING means both. */
function withLeased(states: readonly State[]): readonly State[] | null {
  if (states.length === 0) return null;
  return [...new Set(states.includes('RUNNING') ? [...states, 'LEASED' as const] : states)];
}
