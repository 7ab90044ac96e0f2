/**
 * Fetches jobs of one request class for a worker on a gRPC stream, as far as its credit goes.
 *
 * Guarantees:
 * - Grants never exceed the credit; each grant uses up its credit.
 * - At most one request is running, for as many jobs as one transaction grants well. After each grant it
 *   joins the wait queue again, behind newer requests. This keeps streams fair to each other.
 * - While `canFetch` returns false, because grants have not been sent yet, nothing is requested. `advance`
 *   checks again.
 * - Revoked credit is not requested any more, though a grant that is already running still arrives.
 *
 * Lifecycle: ends with `close`.
 *
 * Failure modes: while the database is unavailable or the server is overloaded, the request is repeated after
 * a pause. Any other failure is passed to `onFailed`, which ends the stream.
 */
import type { Grant } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import type { ClaimFilter } from '../../domain/queue/claim-filter.ts';
import { isOutage, outagePauseMs } from '../context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../context/overload.ts';
import type { Acquirer } from './acquirer.ts';

/**
 * Jobs of one request: half of what one transaction of the dispatcher holds, which leaves space for releases.
 */
const askMax = 250;

export interface CreditFetcherOptions {
  leases: Pick<Acquirer, 'fetch'>;
  workerId: string;
  filter: ClaimFilter;
  /** The class of the filter and the TTL; see `requestClassOf`. */
  requestClass: string;
  /** The TTL of the leases; null uses the setting. */
  ttlS: number | null;
  canFetch(): boolean;
  onGrants(grants: readonly Grant[]): void;
  onFailed(error: unknown): void;
}

export class CreditFetcher {
  readonly #options: CreditFetcherOptions;
  readonly #gone = new AbortController();
  #idle = new AbortController();
  #credit = 0;
  #fetching = false;
  #pause: NodeJS.Timeout | undefined;

  constructor(options: CreditFetcherOptions) {
    this.#options = options;
  }

  get filter(): ClaimFilter {
    return this.#options.filter;
  }

  /** How many jobs the worker would still take. */
  get credit(): number {
    return this.#credit;
  }

  /** There is no credit, and no request is running. */
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
    const { leases, workerId, filter, requestClass, ttlS, onGrants, onFailed } = this.#options;
    const { signal } = this.#gone;
    try {
      const count = () => Math.min(this.#credit, askMax);
      const idle = this.#idle.signal;
      const grants = await leases.fetch({
        workerId,
        holder: null,
        filter,
        ttlS,
        requestClass,
        count,
        signal,
        idle,
      });
      // Grants of a request that ran when credit was revoked do not use up newer credit.
      if (!idle.aborted) this.#credit = Math.max(this.#credit - grants.length, 0);
      if (grants.length > 0) onGrants(grants);
      // An empty answer means that the credit was revoked or the server is about to stop.
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
