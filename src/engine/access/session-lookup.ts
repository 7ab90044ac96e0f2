/**
 * Reads sessions that a server does not know yet. Any caller can send a cookie, so one statement runs at a
 * time, and hashes that come meanwhile wait for the next one.
 *
 * Failure modes: beyond `waitingMax` a lookup is refused as `overloaded`. A failed statement fails its own
 * lookups.
 */
import type { Session } from '../../domain/access/session.ts';
import { DomainError } from '../../domain/errors.ts';

/** Hashes that wait for a statement. */
const waitingMax = 1_000;

export class SessionLookup {
  readonly #read: (hashes: readonly string[]) => Promise<readonly Session[]>;
  readonly #waiting = new Set<string>();
  #running: Promise<unknown> = Promise.resolve();
  #next: Promise<readonly Session[]> | undefined;

  constructor(read: (hashes: readonly string[]) => Promise<readonly Session[]>) {
    this.#read = read;
  }

  async find(hash: string): Promise<Session | undefined> {
    if (this.#waiting.size >= waitingMax)
      throw new DomainError('overloaded', 'too many sessions are looked up; try again');
    this.#waiting.add(hash);
    this.#next ??= this.#running.then(() => this.#start());
    return (await this.#next).find((session) => session.hash === hash);
  }

  #start(): Promise<readonly Session[]> {
    const hashes = [...this.#waiting];
    this.#waiting.clear();
    this.#next = undefined;
    const found = this.#read(hashes);
    this.#running = found.catch(() => {});
    return found;
  }
}
