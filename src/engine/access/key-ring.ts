/**
 * All keys, in memory, so that checking one needs no statement.
 *
 * Guarantees: a change of a key is in force on every server `refreshMs` after its commit. Each round reads
 * the revision; the keys are read again only if it has changed. A change of one key affects no other key.
 * The keys stay in force while the database is away, because nothing can be revoked then either; keys expire
 * nevertheless.
 *
 * Lifecycle: `load` reads the keys before the server serves calls. `start` begins the rounds; `stop` writes
 * the last uses and ends them.
 *
 * Failure modes: a failed round is logged, and the next follows after the usual pause.
 */
import { timingSafeEqual } from 'node:crypto';
import type { Key } from '../../domain/access/key.ts';
import { hashOf, parseKey } from '../../domain/access/key-text.ts';
import type { Principal } from '../../domain/access/principal.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { readKeys, readRevision, recordUses, type StoredKey } from '../../store/sql/access/keys.ts';

/** How often the last use of keys is written. */
const usesMs = 60_000;
/** Texts that were checked before, so that a usual call costs one lookup. */
const rememberedMax = 10_000;
/** Addresses of one key that are remembered. */
const addressesMax = 1_000;

interface Entry {
  key: StoredKey;
  /** Who calls with the secret of this hash, so that a stream ends with the secret that opened it. */
  principals: ReadonlyMap<string, Principal>;
  /** The last use that is not written yet. */
  use: { atMs: number; from: string } | undefined;
  /** Addresses that it was used from. */
  addresses: Set<string>;
}

export interface KeyRingOptions {
  database: Database;
  refreshMs: number;
  log: Log;
  nowMs?: () => number;
  /** Takes the first use of a key from an address since the start. If it returns false it is asked again. */
  onNewAddress?: (principal: Principal, address: string) => boolean;
}

/** Why a key does not count; for the log, never for the caller. */
export type KeyRefusal = 'malformed' | 'unknown' | 'wrong secret' | 'revoked' | 'expired';

export class KeyRing implements Service {
  readonly #database: Database;
  readonly #log: Log;
  readonly #nowMs: () => number;
  readonly #onNewAddress: (principal: Principal, address: string) => boolean;
  readonly #refreshes: PeriodicTask;
  readonly #listeners = new Set<() => void>();
  #entries = new Map<string, Entry>();
  #remembered = new Map<string, { entry: Entry; principal: Principal; untilMs: number }>();
  /** The hash of the secret that a principal came with. */
  readonly #secrets = new WeakMap<Principal, string>();
  #revision: string | undefined;
  #usesWrittenAt = 0;

  constructor({ database, refreshMs, log, nowMs = Date.now, onNewAddress = () => true }: KeyRingOptions) {
    this.#onNewAddress = onNewAddress;
    this.#database = database;
    this.#log = log;
    this.#nowMs = nowMs;
    this.#refreshes = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return refreshMs;
      },
      onFailed: (error) => log.warn('the keys could not be refreshed', { error }),
      failedMs: refreshMs,
    });
  }

  /** The keys in force: neither revoked nor expired. */
  get size(): number {
    const now = this.#nowMs();
    return [...this.#entries.values()].filter(({ key }) => isInForce(key, now)).length;
  }

  get keys(): readonly Key[] {
    return [...this.#entries.values()].map(({ key }) => key);
  }

  /** Calls the listener after each round. Streams check then whether their key still counts. */
  onRound(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async load(): Promise<void> {
    await this.#read(await readRevision(this.#database));
  }

  start(): void {
    this.#refreshes.start();
  }

  async stop(): Promise<void> {
    await this.#refreshes.stop();
    await this.#writeUses();
  }

  async runOnce(): Promise<void> {
    const revision = await readRevision(this.#database);
    if (revision !== this.#revision) await this.#read(revision);
    for (const listener of this.#listeners) listener();
    if (this.#nowMs() - this.#usesWrittenAt >= usesMs) await this.#writeUses();
  }

  /** The principal of a key's text, or why the text does not count. */
  check(text: string, peer: string): Principal | KeyRefusal {
    const now = this.#nowMs();
    const remembered = this.#remembered.get(text);
    const found = remembered && now < remembered.untilMs ? remembered : this.#verify(text, now);
    if (typeof found === 'string') return found;
    const { entry, principal } = found;
    const { key } = entry;
    if (key.revokedAtMs !== null) return 'revoked';
    if (key.expiresAtMs !== null && key.expiresAtMs <= now) return 'expired';
    if (entry.use) {
      entry.use.atMs = now;
      entry.use.from = peer;
    } else entry.use = { atMs: now, from: peer };
    if (!entry.addresses.has(peer)) this.#addAddress(entry, principal, peer);
    return principal;
  }

  /** The principal of a key that counts. */
  find(keyId: string): Principal | undefined {
    const entry = this.#entries.get(keyId);
    if (!entry || !isInForce(entry.key, this.#nowMs())) return undefined;
    return entry.principals.get(entry.key.secretHash);
  }

  /** Whether a principal that came with a key still counts, and the secret that it came with too. */
  isInForce(principal: Principal): boolean {
    const key = this.#entries.get(principal.id)?.key;
    const hash = this.#secrets.get(principal);
    if (!key || hash === undefined) return false;
    const now = this.#nowMs();
    return isInForce(key, now) && now < secretUntilMs(key, hash);
  }

  #addAddress({ addresses }: Entry, principal: Principal, peer: string): void {
    // The audit has an address once, however often it is reported.
    if (addresses.size >= addressesMax) addresses.clear();
    if (this.#onNewAddress(principal, peer)) addresses.add(peer);
  }

  #verify(text: string, now: number): { entry: Entry; principal: Principal } | KeyRefusal {
    const parts = parseKey(text);
    if (!parts) return 'malformed';
    const entry = this.#entries.get(parts.keyId);
    if (!entry) return 'unknown';
    const hash = hashOf(parts.secret);
    const untilMs = secretUntilMs(entry.key, hash);
    const principal = entry.principals.get(hash);
    if (untilMs <= now || !principal) return 'wrong secret';
    if (this.#remembered.size >= rememberedMax) this.#remembered.clear();
    const found = { entry, principal, untilMs };
    this.#remembered.set(text, found);
    return found;
  }

  async #read(revision: string): Promise<void> {
    // The revision was read first: a change between the two reads leads to one read too many, never to one
    // too few.
    const keys = await readKeys(this.#database);
    const before = this.#entries;
    this.#entries = new Map(
      keys.map((key) => {
        const { use, addresses = new Set<string>() } = before.get(key.keyId) ?? {};
        return [key.keyId, { key, principals: this.#principalsOf(key), use, addresses }];
      }),
    );
    this.#remembered = new Map();
    this.#revision = revision;
    this.#log.debug('the keys were read', { keys: keys.length });
  }

  #principalsOf(key: StoredKey): ReadonlyMap<string, Principal> {
    const principals = new Map<string, Principal>();
    for (const hash of [key.secretHash, key.previousHash]) {
      if (hash === null) continue;
      const principal = principalOf(key);
      principals.set(hash, principal);
      this.#secrets.set(principal, hash);
    }
    return principals;
  }

  async #writeUses(): Promise<void> {
    this.#usesWrittenAt = this.#nowMs();
    const used = [...this.#entries.values()].filter((entry) => entry.use);
    const uses = used.map(({ key, use }) => ({
      keyId: key.keyId,
      atMs: use?.atMs ?? 0,
      from: use?.from ?? '',
    }));
    for (const entry of used) entry.use = undefined;
    await recordUses(this.#database, uses);
  }
}

/** Compares in a time that does not depend on the texts. */
const areEqual = (a: string, b: string): boolean => timingSafeEqual(Buffer.from(a), Buffer.from(b));

/** Until when the secret of this hash counts; 0 for one that never did. */
function secretUntilMs({ secretHash, previousHash, previousUntilMs }: StoredKey, hash: string): number {
  if (areEqual(hash, secretHash)) return Number.POSITIVE_INFINITY;
  return previousHash !== null && areEqual(hash, previousHash) ? (previousUntilMs ?? 0) : 0;
}

const isInForce = ({ revokedAtMs, expiresAtMs }: Key, now: number): boolean =>
  revokedAtMs === null && (expiresAtMs === null || expiresAtMs > now);

const principalOf = (key: Key): Principal => ({
  kind: 'key',
  id: key.keyId,
  name: key.name,
  roles: key.roles,
  scopes: key.scopes,
  workerIds: key.workerIds,
  seesPayloads: key.seesPayloads,
  limits: key.limits,
  holder: key.lineage,
  expiresAtMs: key.expiresAtMs,
});
