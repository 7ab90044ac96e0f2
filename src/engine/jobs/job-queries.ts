import { invalid, jobNotFound, printable } from '../../domain/errors.ts';
import type { Job, JobEvent, JobWithResult } from '../../domain/jobs/job.ts';
import type { State } from '../../domain/jobs/state-machine.ts';
import { limits } from '../../domain/limits.ts';
import type { ListJobEvents, ListJobs, ListStreams } from '../../domain/requests/scheduler.ts';
import { instantMs } from '../../domain/requests/validator.ts';
import type { StreamDepth } from '../../domain/streams/stream-depth.ts';
import { isUuid } from '../../lib/uuid.ts';
import { listEvents } from '../../store/sql/events/find.ts';
import { findJob, listJobs } from '../../store/sql/jobs/find.ts';
import { streamDepth, streamDepths } from '../../store/sql/streams/depths.ts';
import { scopePatternsOf } from '../access/restrict-filter.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import { type JobEventsPage, JobWatcher } from './job-watcher.ts';

export type { JobEventsPage as JobNews } from './job-watcher.ts';

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** Reads jobs. A query is canceled with its caller's signal. */
export class JobQueries {
  readonly #context: EngineContext;
  readonly #watcher: JobWatcher;

  constructor(context: EngineContext) {
    this.#context = context;
    this.#watcher = new JobWatcher(context, (jobId, cursor, caller) =>
      this.#readWithHistory(jobId, cursor, caller),
    );
  }

  /** Ends the streams of `watch`, so that a stopping server need not wait for them. */
  stop(): void {
    this.#watcher.stop();
  }

  close(): Promise<void> {
    return this.#watcher.close();
  }

  async get(jobId: string, { signal }: Caller): Promise<JobWithResult> {
    this.#context.metrics.noteIds({ job_id: jobId });
    if (!isUuid(jobId)) throw jobNotFound(jobId);
    const found = await findJob(this.#context.database, jobId.toLowerCase(), signal);
    if (!found) throw jobNotFound(jobId);
    return found;
  }

  async list(command: ListJobs, { signal, principal }: Caller): Promise<Page<Job>> {
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
        oldestFirst: command.oldest_first ?? false,
        cursor,
        limit: limit + 1,
        scope: scopePatternsOf(principal),
      },
      signal,
    );
    const items = jobs.slice(0, limit);
    return { items, nextCursor: found > items.length ? (items.at(-1)?.jobId ?? null) : null };
  }

  /** Streams that have or had a job still in the database, by name, with their counts. */
  async streams(command: ListStreams, { signal }: Caller): Promise<Page<StreamDepth>> {
    const { database } = this.#context;
    if (command.stream != null)
      return { items: await streamDepth(database, command.stream, signal), nextCursor: null };
    const limit = command.limit ?? limits.pageRows;
    // One more row shows whether there is a next page.
    const found = await streamDepths(database, { after: command.cursor ?? '', limit: limit + 1 }, signal);
    const items = found.slice(0, limit);
    return { items, nextCursor: found.length > limit ? (items.at(-1)?.stream ?? null) : null };
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

  /** The job is read first: if it has ended by then, the events read afterwards are complete. */
  async #readWithHistory(jobId: string, cursor: string, caller: Caller): Promise<JobEventsPage> {
    const found = await this.get(jobId, caller);
    const { database } = this.#context;
    return { ...found, events: await listEvents(database, found, cursor, limits.pageRows, caller.signal) };
  }

  /** Follows a job until it has ended; see `JobWatcher`. */
  watch(jobId: string, afterEventId: string | null, caller: Caller): AsyncGenerator<JobEventsPage> {
    return this.#watcher.watch(jobId, afterEventId, caller);
  }
}

/** The contracts do not know LEASED: a caller that asks for RUNNING means both. */
function withLeased(states: readonly State[]): readonly State[] | null {
  if (states.length === 0) return null;
  return [...new Set(states.includes('RUNNING') ? [...states, 'LEASED' as const] : states)];
}
