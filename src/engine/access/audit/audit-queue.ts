/**
 * Events that have no transaction of their own: refused calls, and addresses that keys are used from for the
 * first time. They are collected in memory and written about once a second.
 *
 * Guarantees: collecting neither waits nor fails, and memory is bounded. Of the refusals of one caller for
 * one reason there is one event a second, with the number of the others. A caller is a principal, or the
 * network of an address where no credential is valid. Beyond `refusalsMax` callers and reasons in a second
 * the others are counted together.
 *
 * Lifecycle: asleep until there is an event. `stop` writes what is left.
 *
 * Failure modes: if the database refuses the events, they stay, further ones are counted with them, and all
 * are written later. A server that dies loses those of its last second.
 */
import type { AuditDraft } from '../../../domain/access/audit.ts';
import type { Principal } from '../../../domain/access/principal.ts';
import { PeriodicTask } from '../../../lib/async/periodic-task.ts';
import type { Service } from '../../../lib/async/service.ts';
import type { Log } from '../../../lib/log.ts';
import { networkOf } from '../../../lib/net/address-of.ts';
import type { Database } from '../../../store/database.ts';
import { recordAudit, recordNewAddresses } from '../../../store/sql/access/audit.ts';
import { type Refusals, type RefusedCall, refusalIn } from './refusals.ts';

const writeMs = 1_000;
const failedMs = 5_000;
/** The most callers and reasons that one second tells apart. */
export const refusalsMax = 100;
/** The most new addresses that one second takes. */
const addressesMax = 100;
/** No round is due: the next event wakes the writer. */
const asleepMs = 2 ** 31 - 1;
const detailMax = 300;

interface Collected {
  event: AuditDraft;
  /** By `performance.now()`. */
  atMs: number;
}

export interface AuditQueueOptions {
  database: Database;
  log: Log;
}

export class AuditQueue implements Service, Refusals {
  readonly #database: Database;
  readonly #log: Log;
  readonly #rounds: PeriodicTask;
  #refused = new Map<string, Collected>();
  #addresses = new Map<string, Collected>();
  #isFailing = false;

  constructor({ database, log }: AuditQueueOptions) {
    this.#database = database;
    this.#log = log;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return this.#isEmpty ? asleepMs : writeMs;
      },
      onFailed: (error) => this.#warn(error),
      failedMs,
    });
  }

  start(): void {
    this.#rounds.start(writeMs);
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
    await this.runOnce().catch((error: unknown) => this.#warn(error));
  }

  note(call: RefusedCall, error: unknown): void {
    const { principal, peer, method, traceId } = call;
    const refusal = refusalIn(error, principal.kind === 'anonymous');
    if (!refusal) return;
    const { action, reason, target } = refusal;
    const caller = principal.kind === 'anonymous' ? networkOf(peer) : `${principal.kind} ${principal.id}`;
    const event: AuditDraft = {
      principal,
      requestedBy: null,
      peer,
      method: method ?? null,
      action,
      target,
      outcome: 'denied',
      detail: reason.slice(0, detailMax).toWellFormed(),
      traceId: traceId ?? null,
      leftOut: 0,
    };
    this.#collect([caller, action, reason].join('\n'), { event, atMs: performance.now() });
    this.#rounds.wakeIn(writeMs);
  }

  /** Returns false if there is no room: the address counts as new the next time, too. */
  noteAddress({ kind, id, name }: Principal, address: string): boolean {
    const key = `${id}\n${address}`;
    if (this.#addresses.size >= addressesMax && !this.#addresses.has(key)) return false;
    const event: AuditDraft = {
      principal: { kind, id, name },
      requestedBy: null,
      peer: address,
      method: null,
      action: 'keys.new_address',
      target: id,
      outcome: 'done',
      detail: null,
      traceId: null,
      leftOut: 0,
    };
    this.#addresses.set(key, { event, atMs: performance.now() });
    this.#rounds.wakeIn(writeMs);
    return true;
  }

  /** Writes what has been collected. */
  async runOnce(): Promise<void> {
    const [refused, addresses] = [this.#refused, this.#addresses];
    this.#refused = new Map();
    this.#addresses = new Map();
    try {
      await recordAudit(this.#database, ...draftsOf(refused));
      refused.clear();
      await recordNewAddresses(this.#database, draftsOf(addresses));
      this.#isFailing = false;
    } catch (error) {
      const later = this.#refused;
      this.#refused = refused;
      for (const [key, collected] of later) this.#collect(key, collected);
      this.#addresses = new Map([...addresses, ...this.#addresses].slice(0, addressesMax));
      throw error;
    }
  }

  get #isEmpty(): boolean {
    return this.#refused.size === 0 && this.#addresses.size === 0;
  }

  #collect(key: string, collected: Collected): void {
    const { event } = collected;
    const known = this.#refused.get(key);
    if (known) known.event.leftOut += 1 + event.leftOut;
    else if (this.#refused.size < refusalsMax) this.#refused.set(key, collected);
    else this.#collectOther(collected);
  }

  /** One event for each action stands for the callers and reasons that have no place of their own. */
  #collectOther({ event, atMs }: Collected): void {
    const key = `other\n${event.action}`;
    const known = this.#refused.get(key);
    if (known) known.event.leftOut += 1 + event.leftOut;
    else
      this.#refused.set(key, {
        event: { ...event, principal: others, peer: '', method: null, target: null, detail: otherText },
        atMs,
      });
  }

  #warn(error: unknown): void {
    if (!this.#isFailing) this.#log.warn('refused calls could not be recorded in the audit', { error });
    this.#isFailing = true;
  }
}

const others = { kind: 'anonymous', id: '', name: '' } as const;
const otherText = 'refusals of further callers';

const draftsOf = (collected: ReadonlyMap<string, Collected>): AuditDraft[] => {
  const now = performance.now();
  return [...collected.values()].map(({ event, atMs }) => ({ ...event, agoMs: now - atMs }));
};
