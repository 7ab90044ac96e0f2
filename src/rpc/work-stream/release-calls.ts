/**
 * The releases of one stream between reading and answering.
 *
 * Purpose: gathers the releases that are read in one turn of the event loop, and passes them to the
 * dispatcher together at its end.
 *
 * Guarantees: each release is answered once, after its commit; an error in a release is an answer. A release
 * on a locked row is answered later, and delays no other. Releases continue if the client disconnects: the
 * client has already reported how its jobs ended.
 *
 * Failure modes: an outage of the database is answered with `unavailable`. Calls to an overloaded engine are
 * repeated for ten seconds. Any other failure is passed to `onFailed`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { DomainError } from '../../domain/errors.ts';
import type { Release } from '../../domain/leases/lease.ts';
import { isOutage } from '../../engine/context/database-outage.ts';
import { isOverload, overloadPauseMs } from '../../engine/context/overload.ts';
import type { EndOutcome } from '../../engine/dispatch/lease-endings.ts';
import type { Engine } from '../../engine/engine.ts';
import type { ReleaseAnswer } from './encode.ts';
import type { NamedRelease } from './frames.ts';

/** Releases in one call to the dispatcher: half of what one of its transactions holds. */
const releasesPerCall = 250;
/** How long a call to an overloaded engine is repeated. */
const overloadedMs = 10_000;

export interface ReleaseCallsOptions {
  leases: Pick<Engine['leases'], 'endEach'>;
  onAnswer(answer: ReleaseAnswer): void;
  /** The lease has ended. */
  onEnded(leaseId: string): void;
  onFailed(error: unknown): void;
  /** A call has ended, or a late outcome has arrived. */
  onDone(): void;
}

export class ReleaseCalls {
  readonly #options: ReleaseCallsOptions;
  #gathered: NamedRelease[] = [];
  #underWay = 0;
  #callScheduled = false;

  constructor(options: ReleaseCallsOptions) {
    this.#options = options;
  }

  get isIdle(): boolean {
    return this.#gathered.length === 0 && this.#underWay === 0;
  }

  gather(releases: readonly NamedRelease[]): void {
    for (const release of releases) this.#gathered.push(release);
  }

  schedule(): void {
    if (this.#callScheduled || this.#gathered.length === 0) return;
    this.#callScheduled = true;
    setImmediate(() => {
      this.#callScheduled = false;
      const gathered = this.#gathered;
      this.#gathered = [];
      for (let i = 0; i < gathered.length; i += releasesPerCall)
        void this.#release(gathered.slice(i, i + releasesPerCall));
    });
  }

  async #release(releases: readonly NamedRelease[]): Promise<void> {
    this.#underWay++;
    try {
      const ended = await this.#endEach(releases.map(({ release }) => release));
      for (const [i, one] of ended.entries()) this.#settle(releases[i] as NamedRelease, one);
    } catch (error) {
      if (!isOutage(error)) this.#options.onFailed(error);
      else for (const release of releases) this.#answer(release, databaseUnavailable);
    } finally {
      this.#underWay--;
      this.#options.onDone();
    }
  }

  async #endEach(releases: readonly Release[]): ReturnType<Engine['leases']['endEach']> {
    const sinceMs = performance.now();
    for (;;) {
      try {
        return await this.#options.leases.endEach(releases);
      } catch (error) {
        if (!isOverload(error) || performance.now() - sinceMs > overloadedMs) throw error;
        await delay(overloadPauseMs());
      }
    }
  }

  #settle(release: NamedRelease, outcome: EndOutcome | Error | Promise<EndOutcome>): void {
    if (outcome instanceof Promise) void this.#settleLater(release, outcome);
    else if (!(outcome instanceof Error)) {
      this.#options.onEnded(release.release.leaseId);
      this.#answer(release, outcome);
    } else if (isOutage(outcome)) this.#answer(release, databaseUnavailable);
    else if (outcome instanceof DomainError) this.#answer(release, outcome);
    else this.#options.onFailed(outcome);
  }

  async #settleLater(release: NamedRelease, outcome: Promise<EndOutcome>): Promise<void> {
    this.#underWay++;
    const problemOf = (error: unknown) => (error instanceof DomainError ? error : rowLocked);
    try {
      this.#settle(release, await outcome.catch(problemOf));
    } catch (error) {
      this.#options.onFailed(error);
    } finally {
      this.#underWay--;
      this.#options.onDone();
    }
  }

  #answer({ named, weight }: NamedRelease, outcome: EndOutcome | DomainError): void {
    this.#options.onAnswer({ named, weight, outcome });
  }
}

/** Another transaction holds the row lock for longer than the session may wait; others are not affected. */
const rowLocked = new DomainError(
  'unavailable',
  'another transaction has locked the job; send the release again',
);

const databaseUnavailable = new DomainError(
  'unavailable',
  'the database does not answer; whether the release took effect is not known: send it again',
);
