import { DomainError, invalid, printable } from '../../domain/errors.ts';
import type { Blocked, FileEvent, FileLease } from '../../domain/files/file-lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ListBlockers, ListFileLeases, WatchFiles } from '../../domain/requests/files.ts';
import { abandoned } from '../../lib/async/batcher.ts';
import { isUuid } from '../../lib/uuid.ts';
import { eventHorizon, type FileEventPosition, followFileEvents } from '../../store/sql/files/events.ts';
import { listContentions, listFileLeases } from '../../store/sql/files/find.ts';
import { readClock } from '../../store/sql/files/owners.ts';
import type { Caller, EngineContext } from '../context/engine-context.ts';
import type { Page } from '../jobs/job-queries.ts';
import { blockedOnes } from './blocker-report.ts';

/** Events since the last read, and the cursor to continue from. */
export interface FileEventsPage {
  events: FileEvent[];
  cursor: string;
}

/**
 * Events behind a transaction that is still open cannot be sent yet. They are read again after this delay,
 * which doubles each time.
 */
const pendingMinMs = 10;
const pendingMaxMs = 1_000;

/** Reads files, contentions and their events. */
export class FileQueries {
  readonly #context: EngineContext;
  readonly #stopping = new AbortController();
  readonly #wakes = new Set<() => void>();

  constructor(context: EngineContext) {
    this.#context = context;
    context.notifier.onFiles(() => {
      for (const wake of this.#wakes) wake();
    });
    context.notifier.addListenerCount(() => this.#wakes.size);
  }

  /** Ends all watches, so that a stopping server need not wait for them. */
  stop(): void {
    this.#stopping.abort(new DomainError('unavailable', 'the server is shutting down'));
  }

  async leases(command: ListFileLeases, { signal }: Caller): Promise<Page<FileLease>> {
    const limit = command.limit ?? limits.filePageRowsDefault;
    const cursor = command.cursor || null;
    if (cursor !== null && !/^\d{1,18}$/.test(cursor)) throw malformedCursor('cursor', cursor);
    const leases = await listFileLeases(
      this.#context.database,
      {
        repository: command.repository ?? null,
        ownerId: command.owner_id ?? null,
        cursor,
        limit: limit + 1,
      },
      signal,
    );
    const items = leases.slice(0, limit);
    return { items, nextCursor: leases.length > limit ? (items.at(-1)?.fence ?? null) : null };
  }

  async blockers(command: ListBlockers, { signal }: Caller): Promise<Page<Blocked>> {
    const limit = command.limit ?? limits.filePageRowsDefault;
    const cursor = command.cursor || null;
    if (cursor !== null && !isUuid(cursor)) throw malformedCursor('cursor', cursor);
    const { database } = this.#context;
    const filter = {
      repository: command.repository ?? null,
      ownerId: command.owner_id ?? null,
      state: command.state ?? null,
      cursor,
      limit: limit + 1,
    };
    const found = await listContentions(database, filter, signal);
    const { nowMs } = await readClock(database);
    const ids = [...new Set(found.map(({ contentionId }) => contentionId))];
    const last = ids.length > limit ? (ids[limit - 1] ?? null) : null;
    const page = found.filter(({ contentionId }) => last === null || contentionId >= last);
    return { items: blockedOnes(page, nowMs), nextCursor: last };
  }

  /**
   * Follows events: sends the starting cursor first, and then everything that is committed, until the caller
   * disconnects.
   */
  async *watch(command: WatchFiles, { signal }: Caller): AsyncGenerator<FileEventsPage> {
    const { database } = this.#context;
    const stopping = this.#stopping.signal;
    const until = signal ? AbortSignal.any([signal, stopping]) : stopping;
    const filter = { repository: command.repository ?? null, ownerId: command.owner_id ?? null };
    let woken = false;
    let ring = () => {};
    const wake = () => {
      woken = true;
      ring();
    };
    const leave = this.#context.watchLimiter.enter();
    this.#wakes.add(wake);
    this.#context.notifier.announce();
    until.addEventListener('abort', wake, { once: true });
    try {
      const after = command.after_cursor || null;
      let place = after === null ? await eventHorizon(database, until) : eventIdOf(after);
      yield { events: [], cursor: cursorOf(place) };
      let pauseMs = pendingMinMs;
      while (!until.aborted) {
        woken = false;
        const from = place;
        const found = await this.#context.watchLimiter.read(
          () => followFileEvents(database, from, filter, limits.pageRows, until),
          until,
        );
        place = found.place;
        if (found.events.length > 0) {
          pauseMs = pendingMinMs;
          yield { events: found.events, cursor: cursorOf(place) };
        }
        if (found.more || woken) continue;
        await new Promise<void>((resolve) => {
          const timer = found.pending ? setTimeout(resolve, pauseMs) : undefined;
          ring = () => {
            clearTimeout(timer);
            resolve();
          };
          if (woken) ring();
        });
        pauseMs = Math.min(pauseMs * 2, pendingMaxMs);
        ring = () => {};
      }
      throw abandoned(until);
    } finally {
      leave();
      this.#wakes.delete(wake);
      until.removeEventListener('abort', wake);
    }
  }
}

const cursorOf = ({ txid, eventId }: FileEventPosition): string => `${txid}.${eventId}`;

function eventIdOf(cursor: string): FileEventPosition {
  const [, txid, eventId] = /^(\d{1,18})\.(\d{1,18})$/.exec(cursor) ?? [];
  if (txid === undefined || eventId === undefined) throw malformedCursor('after_cursor', cursor);
  return { txid, eventId };
}

const malformedCursor = (field: string, value: string): DomainError =>
  invalid(field, `is not one of ours: ${printable(value)}`);
