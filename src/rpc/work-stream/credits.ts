/**
 * The credit of one gRPC stream: a `CreditFetcher` for each request class that the worker wants.
 *
 * Guarantees: at most `limits.creditKinds` classes have credit at the same time. A repeated credit is
 * recognized by its bytes and need not be decoded. Fetchers without credit are removed when a new class
 * arrives.
 *
 * Lifecycle: `close` revokes all credit.
 */
import { invalid } from '../../domain/errors.ts';
import type { Grant } from '../../domain/leases/lease.ts';
import { limits } from '../../domain/limits.ts';
import { requestClassOf } from '../../domain/queue/claim-filter.ts';
import type { Engine } from '../../engine/engine.ts';
import { CreditFetcher } from '../../engine/leases/credit-fetcher.ts';
import type { CreditField, CreditRequest } from './frames.ts';

export interface CreditsOptions {
  leases: Pick<Engine['leases'], 'fetch'>;
  canFetch(): boolean;
  onGrants(grants: readonly Grant[]): void;
  onFailed(error: unknown): void;
}

export class Credits {
  readonly #options: CreditsOptions;
  readonly #fetchers = new Map<string, CreditFetcher>();
  /** The fetchers by the encoded form of their class. */
  readonly #fetchersByBytes = new Map<string, CreditFetcher>();

  constructor(options: CreditsOptions) {
    this.#options = options;
  }

  get fetchers(): Iterable<CreditFetcher> {
    return this.#fetchers.values();
  }

  /** Throws `invalid_request` if the class cannot be decoded, or if there are too many. */
  add(credit: CreditField, workerId: string): void {
    const fetcher = this.#fetchersByBytes.get(credit.bytes) ?? this.#find(credit, workerId);
    if (credit.jobs === 0) fetcher?.revokeCredit();
    else if (fetcher) this.#addJobs(fetcher, credit.jobs);
  }

  /** Requests jobs, as far as there is credit. */
  advance(): void {
    for (const fetcher of this.fetchers) fetcher.advance();
  }

  close(): void {
    for (const fetcher of this.fetchers) fetcher.close();
  }

  #addJobs(fetcher: CreditFetcher, jobs: number): void {
    if (fetcher.credit === 0) {
      const wanted = [...this.fetchers].filter(({ credit }) => credit > 0).length;
      if (wanted >= limits.creditKinds) throw tooManyClasses;
    }
    fetcher.add(jobs);
  }

  /** The fetcher for a request class. Undefined if the client revokes credit that it never gave. */
  #find({ bytes, wanted: decode, jobs }: CreditField, workerId: string): CreditFetcher | undefined {
    const wanted = decode();
    const requestClass = requestClassOf(wanted.filter, wanted.ttlS);
    const known = this.#fetchers.get(requestClass);
    if (!known && jobs === 0) return undefined;
    const fetcher = known ?? this.#create(requestClass, wanted, workerId);
    // A class has many encodings. The map keeps only recent ones.
    if (this.#fetchersByBytes.size >= 2 * limits.creditKinds) this.#fetchersByBytes.clear();
    this.#fetchersByBytes.set(bytes, fetcher);
    return fetcher;
  }

  #create(requestClass: string, { filter, ttlS }: CreditRequest, workerId: string): CreditFetcher {
    for (const [other, { isIdle }] of this.#fetchers) if (isIdle) this.#remove(other);
    // A fetcher without credit becomes idle when its last request is answered, which is soon.
    if (this.#fetchers.size >= 2 * limits.creditKinds) throw tooManyClasses;
    const fetcher = new CreditFetcher({ ...this.#options, workerId, filter, requestClass, ttlS });
    this.#fetchers.set(requestClass, fetcher);
    return fetcher;
  }

  #remove(requestClass: string): void {
    const removed = this.#fetchers.get(requestClass);
    this.#fetchers.delete(requestClass);
    for (const [bytes, fetcher] of this.#fetchersByBytes)
      if (fetcher === removed) this.#fetchersByBytes.delete(bytes);
  }
}

const tooManyClasses = invalid(
  'credits',
  `there may be credit for ${limits.creditKinds} kinds at the same time`,
);
