/**
 * What a worker on a stream wants of one kind of job, and gets as soon as there is some.
 *
 * Promises: never more is granted than there is credit for; a grant uses up its credit. At any time at most one question is
 * under way, for as many jobs as one transaction deals well, and it stands in the line of its kind like everybody else's,
 * behind those who have come meanwhile each time it has been served: that is what keeps streams fair to each other.
 * While `mayAsk` says no, because what was granted has not left yet, nothing is asked for; `advance` says that it may be
 * different now. Credit that is taken back is not asked for any more, though what was on its way still comes.
 *
 * While the database is away the question is asked again after a pause. Ends with `close`, or when a question fails for another
 * reason, which `onFailed` is told.
 */
import type { Grant } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { isOutage, outagePauseMs } from '../context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../context/overload.ts';
import { type Acquirer, requestClassOf } from './acquirer.ts';

/** Jobs in one question: half of what one transaction at the desk holds, so that there is room for what comes back. */
const askMax = 250;

export interface CreditFetcherOptions {
  acquirer: Pick<Acquirer, 'fetch'>;
  workerId: string;
  filter: ClaimFilter;
  /** The TTL of the leases; null for that of the settings. */
  ttlS: number | null;
  canFetch(): boolean;
  onGrants(grants: readonly Grant[]): void;
  onFailed(error: unknown): void;
}

export class CreditFetcher {
  readonly #options: CreditFetcherOptions;
  readonly #kind: string;
  readonly #gone = new AbortController();
  #idle = new AbortController();
  #credit = 0;
  #fetching = false;
  #pause: NodeJS.Timeout | undefined;

  constructor(options: CreditFetcherOptions) {
    this.#options = options;
    this.#kind = requestClassOf(options.filter, options.ttlS);
  }

  get filter(): ClaimFilter {
    return this.#options.filter;
  }

  /** How many jobs it would still take. */
  get credit(): number {
    return this.#credit;
  }

  /** Nothing is wanted, and nothing is on its way. */
  get isIdle(): boolean {
    return this.#credit === 0 && !this.#fetching;
  }

  add(jobs: number): void {
    this.#credit = Math.min(this.#credit + jobs, limits.creditJobs);
    this.advance();
  }

  revokeCredit(): void {
    this.#credit = 0;
    this.#idle.abort();
  }

  close(): void {
    this.revokeCredit();
    clearTimeout(this.#pause);
    this.#gone.abort();
  }

  advance(): void {
    if (this.#fetching || this.#pause || this.#credit === 0 || this.#gone.signal.aborted) return;
    if (this.#options.canFetch()) void this.#fetch();
  }

  async #fetch(): Promise<void> {
    this.#fetching = true;
    if (this.#idle.signal.aborted) this.#idle = new AbortController();
    const { acquirer, workerId, filter, ttlS, onGrants, onFailed } = this.#options;
    const { signal } = this.#gone;
    try {
      const count = () => Math.min(this.#credit, askMax);
      const idle = this.#idle.signal;
      const grants = await acquirer.fetch({ workerId, filter, ttlS, kind: this.#kind, count, signal, idle });
      // What was on its way when credit was taken back is not paid for by what was given since.
      if (!idle.aborted) this.#credit = Math.max(this.#credit - grants.length, 0);
      if (grants.length > 0) onGrants(grants);
      // Nothing comes only where nothing is wanted any more, or the server is about to stop.
      else if (!idle.aborted) this.close();
    } catch (error) {
      if (signal.aborted) return;
      if (isOverload(error)) this.#pauseFor(overloadPauseMs());
      else if (isOutage(error)) this.#pauseFor(outagePauseMs());
      else onFailed(error);
    } finally {
      this.#fetching = false;
    }
    this.advance();
  }

  #pauseFor(ms: number): void {
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.advance();
    }, ms);
  }
}
