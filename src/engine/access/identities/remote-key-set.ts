/**
 * The keys of an issuer, fetched from its address.
 *
 * Guarantees: a token with a known key waits for nothing, however slow or dead the issuer is. A token with an
 * unknown key leads to at most one request each `cooldownMs`, which all such tokens wait for, and which ends
 * after `timeoutMs`. The last keys stay in use while the issuer does not answer.
 *
 * Lifecycle: `open` fetches the keys and throws if there are none. `start` fetches them again every
 * `refreshMs`; `stop` ends that and a request under way.
 */
import { readFile } from 'node:fs/promises';
import { errors, type JWTVerifyGetKey, type LocalJWKSet } from 'jose';
import { PeriodicTask } from '../../../lib/async/periodic-task.ts';
import { fetchText } from '../../../lib/http/fetch-text.ts';
import type { Log } from '../../../lib/log.ts';
import { parseKeySet } from './key-set.ts';

const bytesMax = 1024 * 1024;
/** The most tokens with an unknown key that wait for a request at once. */
const waitingMax = 100;

export interface RemoteKeySetOptions {
  url: string;
  /** The authorities of the issuer's certificate. */
  caFile: string | undefined;
  log: Log;
  refreshMs?: number;
  cooldownMs?: number;
  timeoutMs?: number;
}

export class RemoteKeySet {
  readonly #options: RemoteKeySetOptions;
  readonly #cooldownMs: number;
  readonly #rounds: PeriodicTask;
  readonly #refreshMs: number;
  readonly #stopping = new AbortController();
  readonly #listeners: (() => void)[] = [];
  #text = '';
  #keys: LocalJWKSet | undefined;
  #running: Promise<void> | undefined;
  #triedAt = Number.NEGATIVE_INFINITY;
  #waiting = 0;
  #isFailing = false;

  private constructor(options: RemoteKeySetOptions) {
    this.#options = options;
    this.#cooldownMs = options.cooldownMs ?? 10_000;
    this.#refreshMs = options.refreshMs ?? 300_000;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return this.#refreshMs;
      },
      onFailed: () => {},
      failedMs: Math.min(this.#refreshMs, 30_000),
    });
  }

  static async open(options: RemoteKeySetOptions): Promise<RemoteKeySet> {
    const set = new RemoteKeySet(options);
    await set.#fetch();
    return set;
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  start(): void {
    this.#rounds.start(this.#refreshMs);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#rounds.stop();
  }

  /** The key of a token, for `jwtVerify`. */
  readonly find: JWTVerifyGetKey = async (header, token) => {
    const keys = this.#keys as LocalJWKSet;
    try {
      return await keys(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await this.#lookAgain();
      const fresh = this.#keys as LocalJWKSet;
      if (fresh === keys) throw error;
      return fresh(header, token);
    }
  };

  /** Fetches the keys. A failure is logged once, until a request succeeds. */
  runOnce(): Promise<void> {
    this.#running ??= this.#fetch()
      .then(
        () => {
          this.#isFailing = false;
        },
        (error: unknown) => {
          if (!this.#isFailing && !this.#stopping.signal.aborted)
            this.#options.log.warn('the keys of the issuer could not be fetched; the last ones stay in use', {
              error,
            });
          this.#isFailing = true;
          throw error;
        },
      )
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  async #lookAgain(): Promise<void> {
    const mayTry = performance.now() - this.#triedAt >= this.#cooldownMs;
    if ((!this.#running && !mayTry) || this.#waiting >= waitingMax) return;
    this.#waiting++;
    try {
      await this.runOnce();
    } catch {
      // It is logged where it failed; the token is refused because its key is still unknown.
    } finally {
      this.#waiting--;
    }
  }

  async #fetch(): Promise<void> {
    const { url, caFile, timeoutMs = 5_000 } = this.#options;
    this.#triedAt = performance.now();
    const ca = caFile === undefined ? undefined : await readAuthorities(caFile);
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(timeoutMs)]);
    let text: string;
    let keys: LocalJWKSet;
    try {
      text = await fetchText(new URL(url), { ca, bytesMax, signal });
      if (text === this.#text) return;
      keys = parseKeySet(text);
    } catch (cause) {
      throw new Error(`LEASEHOLD_JWT_JWKS_URL: ${(cause as Error).message}`, { cause });
    }
    this.#keys = keys;
    this.#text = text;
    for (const listener of this.#listeners) listener();
  }
}

async function readAuthorities(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new Error(`LEASEHOLD_JWT_CA_FILE: the file cannot be read: ${(cause as Error).message}`, { cause });
  }
}
