/**
 * Sessions of browsers: a login exchanges a credential for a random id, which the browser keeps in a cookie.
 *
 * Guarantees: every login has a new id, and the database has only its hash. A session has the rights of its
 * credential and ends with it, after `ttlMs`, or when it was not used for an hour. The end of a session, of
 * its credential or of a right is in force on every server within `refreshMs`. Logins, refused ones too, and
 * logouts are in the audit.
 *
 * A server remembers the sessions that are used on it, and reads all of them again in each round. They stay
 * in force while the database is away; they expire nevertheless.
 *
 * Lifecycle: `start` begins the rounds; `stop` writes the last uses and ends them.
 *
 * Failure modes: a failed round is logged, and the next follows after the usual pause.
 */
import { anonymous, type Principal } from '../../domain/access/principal.ts';
import {
  hashOfSession,
  LoginRefusedError,
  newSessionId,
  type ProvidedIdentity,
  type Session,
  sessionIdleMs,
} from '../../domain/access/session.ts';
import { DomainError } from '../../domain/errors.ts';
import { PeriodicTask } from '../../lib/async/periodic-task.ts';
import type { Service } from '../../lib/async/service.ts';
import type { Log } from '../../lib/log.ts';
import type { Database } from '../../store/database.ts';
import { recordAudit } from '../../store/sql/access/audit.ts';
import {
  deleteEndedSessions,
  deleteOldestSessions,
  deleteSession,
  findSessions,
  insertSession,
  recordSessionUses,
} from '../../store/sql/access/sessions.ts';
import type { Caller } from '../context/engine-context.ts';
import { denied } from './access-control.ts';
import { audited } from './audit/audited.ts';
import type { KeyRing } from './key-ring.ts';
import { FailedAttempts } from './limits/failed-attempts.ts';
import { SessionLookup } from './session-lookup.ts';

/** Sessions of one credential. A further login ends the oldest. */
export const sessionsOfOneMax = 100;
/** Sessions that a server remembers. */
const rememberedMax = 10_000;
/** A session that is not used for so long on this server is forgotten here. */
const rememberMs = 60_000;
/** How often the use of a session is written. */
const usesMs = 60_000;
/** How often rows of ended sessions are deleted. */
const cleanMs = 600_000;
/** Refused logins are written into the audit once in so long. */
const refusalsMs = 1_000;
/** Failed logins of one address, in a minute and at once. */
const failuresMax = 10;
const failuresS = 60;
/** Logins of one address at the identity provider, in a minute and at once. */
const attemptsMax = 60;

export interface SessionsOptions {
  database: Database;
  /** Without it, there are no sessions of keys. */
  keys: Pick<KeyRing, 'check' | 'find'> | undefined;
  /** The rights of a user of the identity provider, if there is one; undefined for a user without rights. */
  principalOf?(identity: ProvidedIdentity, expiresAtMs: number): Principal | undefined;
  ttlMs: number;
  refreshMs: number;
  log: Log;
  nowMs?: () => number;
}

/** Why a session does not count; for the log, never for the caller. */
export type SessionRefusal = 'unknown session' | 'expired session' | 'idle session' | 'ended credential';

export interface Login {
  /** For the browser alone. */
  id: string;
  principal: Principal;
  session: Session;
}

interface Entry {
  session: Session;
  /** The last use on this server. */
  usedAtMs: number;
  /** When the entry was last needed: by a use, or by a stream that follows it. */
  neededAtMs: number;
  principal: Principal | undefined;
}

export class Sessions implements Service {
  readonly #options: SessionsOptions;
  readonly #nowMs: () => number;
  readonly #rounds: PeriodicTask;
  readonly #failures: FailedAttempts;
  readonly #attempts: FailedAttempts;
  readonly #entries = new Map<string, Entry>();
  readonly #hashes = new WeakMap<Principal, string>();
  readonly #listeners = new Set<() => void>();
  #cleanedAtMs = 0;
  #refusedAtMs = 0;
  readonly #lookup: SessionLookup;

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#nowMs = options.nowMs ?? Date.now;
    this.#attempts = new FailedAttempts(attemptsMax / failuresS, failuresS, this.#nowMs);
    this.#failures = new FailedAttempts(failuresMax / failuresS, failuresS, this.#nowMs);
    this.#lookup = new SessionLookup((hashes) => findSessions(options.database, hashes));
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return options.refreshMs;
      },
      onFailed: (error) => options.log.warn('the sessions could not be read', { error }),
      failedMs: options.refreshMs,
    });
  }

  /** Sessions that are remembered. */
  get size(): number {
    return this.#entries.size;
  }

  /** Calls the listener after each round. Streams check then whether their session still counts. */
  onRound(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.#writeUses(0);
  }

  async runOnce(): Promise<void> {
    const { database } = this.#options;
    const now = this.#nowMs();
    await this.#writeUses(usesMs);
    for (const [hash, { neededAtMs }] of this.#entries)
      if (now - neededAtMs > rememberMs) this.#entries.delete(hash);
    const hashes = [...this.#entries.keys()];
    if (hashes.length > 0) {
      const found = new Map((await findSessions(database, hashes)).map((one) => [one.hash, one]));
      for (const hash of hashes) {
        const [entry, session] = [this.#entries.get(hash), found.get(hash)];
        if (entry && session) entry.session = session;
        else this.#entries.delete(hash);
      }
    }
    this.#announce();
    if (now - this.#cleanedAtMs < cleanMs) return;
    await deleteEndedSessions(database, { nowMs: now, idleSinceMs: now - sessionIdleMs });
    this.#cleanedAtMs = now;
  }

  /**
   * Exchanges the text of a key for a session. `previous` is the session that the browser had, which ends.
   * Throws `unauthenticated` for a key that does not count.
   */
  async loginWithKey(text: string, caller: Caller, previous?: string): Promise<Login> {
    const found = this.#options.keys?.check(text, caller.peer) ?? 'keys are off';
    if (typeof found !== 'string') return this.#begin(found, null, caller, previous);
    await this.#recordRefusal(found, caller);
    throw new DomainError('unauthenticated', 'a valid key is needed');
  }

  /**
   * Begins a session of a user whom the identity provider verifies. Throws `unauthenticated` if the provider
   * or the browser does not finish the login, and `permission_denied` if no access rule matches the user.
   */
  async loginWithProvider(verify: () => Promise<ProvidedIdentity>, caller: Caller): Promise<Login> {
    // Each attempt asks the provider, so that its number is limited before.
    if (this.#attempts.count(caller.peer)) throw new DomainError('rate_limited', 'too many logins');
    const identity = await verify().catch(async (error: unknown) => {
      if (!(error instanceof LoginRefusedError)) throw error;
      await this.#recordRefusal(error.message, caller);
      throw new DomainError('unauthenticated', 'the login failed: begin it anew', { cause: error });
    });
    const { principalOf, ttlMs } = this.#options;
    const granted = principalOf?.(identity, this.#nowMs() + ttlMs);
    if (granted) return this.#begin(granted, identity, caller, undefined);
    await this.#recordRefusal('no access rule', caller);
    throw denied('no access rule matches the user');
  }

  /** Throws `rate_limited` if the address of the caller has failed too often. */
  async #recordRefusal(reason: string, caller: Caller): Promise<void> {
    const limited = this.#failures.count(caller.peer);
    if (limited) throw tooManyFailures(limited);
    const now = this.#nowMs();
    if (now - this.#refusedAtMs < refusalsMs) return;
    this.#refusedAtMs = now;
    const stranger = { ...caller, principal: anonymous };
    const event = audited(stranger, { action: 'session.login', target: null, detail: reason });
    await recordAudit(this.#options.database, { ...event, outcome: 'denied' });
  }

  /** The principal of a session, or why it does not count. At once for a session that is remembered. */
  find(id: string): Principal | SessionRefusal | Promise<Principal | SessionRefusal> {
    const hash = hashOfSession(id);
    const entry = this.#entries.get(hash);
    return entry ? this.#use(entry) : this.#load(hash);
  }

  /** Whether a principal that came with a session still counts, with the same rights. */
  isInForce(principal: Principal): boolean {
    const entry = this.#entryOf(principal);
    if (!entry) return false;
    const now = this.#check(entry);
    if (typeof now === 'string') return false;
    entry.neededAtMs = this.#nowMs();
    return now === principal || JSON.stringify(now) === JSON.stringify(principal);
  }

  /** The session that a principal came with, while it counts. */
  sessionOf(principal: Principal): Session | undefined {
    return this.#entryOf(principal)?.session;
  }

  /** Ends the session of the caller, on all servers. Returns whether there was one. */
  async logout(caller: Caller): Promise<boolean> {
    const hash = this.#hashes.get(caller.principal);
    if (hash === undefined) return false;
    const wasThere = await this.#options.database.transaction(async (sql) => {
      if (!(await deleteSession(sql, hash))) return false;
      const target = nameOf(hash);
      await recordAudit(sql, audited(caller, { action: 'session.logout', target, detail: null }));
      return true;
    }, caller.signal);
    this.#entries.delete(hash);
    this.#announce();
    return wasThere;
  }

  async #begin(
    principal: Principal,
    identity: ProvidedIdentity | null,
    caller: Caller,
    previous: string | undefined,
  ): Promise<Login> {
    const id = newSessionId();
    const ended = previous === undefined ? undefined : hashOfSession(previous);
    const now = this.#nowMs();
    const session: Session = {
      hash: hashOfSession(id),
      principalId: identity ? `${identity.issuer} ${identity.subject}` : principal.id,
      identity,
      createdAtMs: now,
      createdFrom: caller.peer,
      expiresAtMs: now + this.#options.ttlMs,
      lastUsedAtMs: now,
    };
    await this.#options.database.transaction(async (sql) => {
      if (ended !== undefined) await deleteSession(sql, ended);
      await deleteOldestSessions(sql, session.principalId, sessionsOfOneMax - 1);
      await insertSession(sql, session);
      const [target, detail] = [nameOf(session.hash), `with=${principal.kind}`];
      await recordAudit(sql, audited({ ...caller, principal }, { action: 'session.login', target, detail }));
    }, caller.signal);
    if (ended !== undefined) this.#entries.delete(ended);
    const found = this.#use(this.#remember(session));
    if (typeof found === 'string') throw new Error(`a new session does not count: ${found}`);
    return { id, principal: found, session };
  }

  async #load(hash: string): Promise<Principal | SessionRefusal> {
    const session = await this.#lookup.find(hash);
    return session ? this.#use(this.#entries.get(hash) ?? this.#remember(session)) : 'unknown session';
  }

  #remember(session: Session): Entry {
    const entry = { session, usedAtMs: 0, neededAtMs: this.#nowMs(), principal: undefined };
    const [first] = this.#entries.keys();
    if (this.#entries.size >= rememberedMax && first !== undefined) this.#entries.delete(first);
    this.#entries.set(session.hash, entry);
    return entry;
  }

  #entryOf(principal: Principal): Entry | undefined {
    const hash = this.#hashes.get(principal);
    return hash === undefined ? undefined : this.#entries.get(hash);
  }

  #use(entry: Entry): Principal | SessionRefusal {
    const found = this.#check(entry);
    if (typeof found === 'string') return found;
    entry.usedAtMs = this.#nowMs();
    entry.neededAtMs = entry.usedAtMs;
    return found;
  }

  #check(entry: Entry): Principal | SessionRefusal {
    const { session, usedAtMs } = entry;
    const now = this.#nowMs();
    if (session.expiresAtMs <= now) return 'expired session';
    if (Math.max(session.lastUsedAtMs, usedAtMs) + sessionIdleMs <= now) return 'idle session';
    const granted = this.#grantedTo(session);
    if (!granted) return 'ended credential';
    const expiresAtMs = Math.min(session.expiresAtMs, granted.expiresAtMs ?? Number.POSITIVE_INFINITY);
    const principal: Principal = { ...granted, kind: 'session', expiresAtMs };
    // One object while nothing changes, because streams are followed by it.
    if (entry.principal && JSON.stringify(entry.principal) === JSON.stringify(principal))
      return entry.principal;
    entry.principal = principal;
    this.#hashes.set(principal, session.hash);
    return principal;
  }

  /** The rights of the credential of a session, as they are now. */
  #grantedTo({ principalId, identity, expiresAtMs }: Session): Principal | undefined {
    if (!identity) return this.#options.keys?.find(principalId);
    return this.#options.principalOf?.(identity, expiresAtMs);
  }

  #announce(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Writes the last use of sessions whose written one is older by `olderMs`. */
  async #writeUses(olderMs: number): Promise<void> {
    const uses = [...this.#entries.values()]
      .filter(({ session, usedAtMs }) => usedAtMs - session.lastUsedAtMs > olderMs)
      .map(({ session, usedAtMs }) => ({ hash: session.hash, atMs: usedAtMs }));
    if (uses.length > 0) await recordSessionUses(this.#options.database, uses);
  }
}

const tooManyFailures = ({ retryAfterMs }: DomainError): DomainError =>
  new DomainError('rate_limited', `more than ${failuresMax} failed logins a minute`, { retryAfterMs });

/** Names a session in the audit, where a login and its logout have to be matched. */
const nameOf = (hash: string): string => hash.slice(0, 12);
