/**
 * The calls of one stream to the engine, for heartbeats of one kind.
 *
 * Purpose: gathers heartbeats while the maximum of calls is in flight, then sends them in slices of one
 * engine batch.
 *
 * Guarantees: each gathered heartbeat is settled, missed, or dropped with `clear`, once. Verdicts that the
 * engine has at once are settled at once. Verdicts on rows that another transaction has locked are settled
 * later, and delay no other verdict.
 */

/** Heartbeats in one call to the engine: the size of one engine batch. */
export const heartbeatsPerCall = 2_000;
/** Calls in flight, at most: enough to fill the next batch while one is running. */
const callsMax = 4;

export interface EngineCallsOptions<Item, Verdict> {
  heartbeatEach(items: readonly Item[]): Promise<readonly (Verdict | Promise<Verdict>)[]>;
  onSettled(items: readonly Item[], verdicts: readonly Verdict[]): void;
  /** The engine has failed. */
  onMissed(items: readonly Item[], error: unknown): void;
  /** A late verdict has failed. */
  onLateMissed(item: Item, error: unknown): void;
  /** A call has ended, or a late verdict has arrived or failed. */
  onDone(): void;
}

export class EngineCalls<Item, Verdict> {
  readonly #options: EngineCallsOptions<Item, Verdict>;
  #gathered: Item[] = [];
  #calls = 0;
  #late = 0;

  constructor(options: EngineCallsOptions<Item, Verdict>) {
    this.#options = options;
  }

  get isIdle(): boolean {
    return this.#gathered.length === 0 && this.#calls === 0 && this.#late === 0;
  }

  get mayFlush(): boolean {
    return this.#gathered.length > 0 && this.#calls < callsMax;
  }

  gather(items: Item[]): void {
    if (this.#gathered.length === 0) this.#gathered = items;
    else for (const item of items) this.#gathered.push(item);
  }

  /** Puts heartbeats back in front of the gathered ones. */
  putBack(items: readonly Item[]): void {
    this.#gathered = [...items, ...this.#gathered];
  }

  clear(): void {
    this.#gathered = [];
  }

  flush(): void {
    while (this.mayFlush) {
      const all = this.#gathered;
      this.#gathered = all.length > heartbeatsPerCall ? all.slice(heartbeatsPerCall) : [];
      void this.#call(all.length > heartbeatsPerCall ? all.slice(0, heartbeatsPerCall) : all);
    }
  }

  async #call(items: readonly Item[]): Promise<void> {
    this.#calls++;
    try {
      this.#receive(items, await this.#options.heartbeatEach(items));
    } catch (error) {
      this.#options.onMissed(items, error);
    } finally {
      this.#calls--;
      this.#options.onDone();
    }
  }

  #receive(items: readonly Item[], verdicts: readonly (Verdict | Promise<Verdict>)[]): void {
    const late = new Set<number>();
    for (let i = 0; i < verdicts.length; i++) if (verdicts[i] instanceof Promise) late.add(i);
    if (late.size === 0) {
      this.#options.onSettled(items, verdicts as readonly Verdict[]);
      return;
    }
    for (const i of late) void this.#receiveLater(items[i] as Item, verdicts[i] as Promise<Verdict>);
    const isThere = (_: unknown, i: number) => !late.has(i);
    this.#options.onSettled(items.filter(isThere), verdicts.filter(isThere) as Verdict[]);
  }

  async #receiveLater(item: Item, verdict: Promise<Verdict>): Promise<void> {
    this.#late++;
    try {
      this.#options.onSettled([item], [await verdict]);
    } catch (error) {
      this.#options.onLateMissed(item, error);
    } finally {
      this.#late--;
      this.#options.onDone();
    }
  }
}
