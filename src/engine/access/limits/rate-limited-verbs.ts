/**
 * The engine's verbs, each with its place in the rates of the caller. What keeps or ends a lease is never
 * limited: a refused heartbeat would lose the lease.
 *
 * Items are counted: each job of a submission, each file of an acquisition, each row of a page, and each job
 * of a claim. Rows and claimed jobs are known after the call, so they delay the next call instead of it. A
 * watch counts once, when it opens. Streams of work and heartbeats are not counted, because their grants are
 * bounded by the capacity; the number of streams is limited instead.
 */
import type { Caller } from '../../context/engine-context.ts';
import type { Verbs } from '../../engine.ts';
import type { RateBucket, RateLimiter } from './rate-limiter.ts';

interface Weight<Args, Answer> {
  /** Items that are known before the call; one by default. */
  before?: (...args: Args extends unknown[] ? Args : never) => number;
  /** Items of the answer, of which the first is counted before. */
  after?: (answer: Answer) => number;
}

const callerIn = (args: readonly unknown[]): Caller => args.at(-1) as Caller;

export function rateLimited(verbs: Verbs, limiter: RateLimiter): Verbs {
  const counted =
    (bucket: RateBucket) =>
    <Args extends unknown[], Answer>(
      verb: (...args: Args) => Promise<Answer>,
      { before, after }: Weight<Args, Answer> = {},
    ) =>
    async (...args: Args): Promise<Answer> => {
      const { principal } = callerIn(args);
      limiter.take(principal, bucket, before ? before(...(args as never)) : 1);
      const answer = await verb(...args);
      if (after) limiter.add(principal, bucket, after(answer) - 1);
      return answer;
    };
  /** For an answer that comes in parts: the call counts once. */
  const watched =
    <Args extends unknown[], Part>(watch: (...args: Args) => AsyncGenerator<Part>) =>
    (...args: Args): AsyncGenerator<Part> => {
      limiter.take(callerIn(args).principal, 'read', 1);
      return watch(...args);
    };
  const submits = counted('submit');
  const reads = counted('read');
  const administers = counted('admin');
  const rows = { after: ({ items }: { items: readonly unknown[] }) => items.length };

  const { jobs, leases, files, capacity, stats, keys, quotas, queue, workers } = verbs;
  return {
    jobs: {
      ...jobs,
      submit: submits(jobs.submit),
      submitMany: submits(jobs.submitMany, { before: (drafts) => drafts.length }),
      cancel: submits(jobs.cancel),
      retry: submits(jobs.retry),
      retryDeadLetters: submits(jobs.retryDeadLetters, { after: ({ length }) => length }),
      claim: reads(jobs.claim, { after: ({ length }) => length }),
      get: reads(jobs.get),
      list: reads(jobs.list, rows),
      streams: reads(jobs.streams, rows),
      events: reads(jobs.events, rows),
      watch: watched(jobs.watch),
      explain: reads(jobs.explain),
    },
    leases: {
      ...leases,
      request: reads(leases.request),
      acquire: reads(leases.acquire),
      get: reads(leases.get),
      list: reads(leases.list, rows),
      explain: reads(leases.explain),
    },
    files: {
      ...files,
      acquire: reads(files.acquire, { before: ({ files: wanted }) => Math.max(1, wanted.length) }),
      instruct: administers(files.instruct),
      list: reads(files.list, rows),
      blockers: reads(files.blockers, rows),
      watch: watched(files.watch),
    },
    capacity: {
      get: reads(capacity.get),
      set: administers(capacity.set),
      changes: reads(capacity.changes, rows),
    },
    stats: {
      snapshot: reads(stats.snapshot),
      timeseries: reads(stats.timeseries),
      watch: watched(stats.watch),
    },
    keys: {
      create: administers(keys.create),
      list: administers(keys.list),
      get: administers(keys.get),
      rotate: administers(keys.rotate),
      revoke: administers(keys.revoke),
      audit: administers(keys.audit),
    },
    quotas: { set: administers(quotas.set), list: administers(quotas.list) },
    queue: { get: reads(queue.get) },
    workers: { ...workers, list: reads(workers.list) },
  };
}
