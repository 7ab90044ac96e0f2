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

export interface EngineCallsOptions<Beat, Verdict> {
  heartbeatEach(beats: readonly Beat[]): Promise<readonly (Verdict | Promise<Verdict>)[]>;
  onSettled(beats: readonly Beat[], verdicts: readonly Verdict[]): void;
  /** The engine has failed. */
  onMissed(beats: readonly Beat[], error: unknown): void;
  /** A late verdict has failed. */
  onLateMissed(beat: Beat, error: unknown): void;
  /** A call has ended, or a late verdict has arrived or failed. */
  onDone(): void;
}

export class EngineCalls<Beat, Verdict> {
  readonly #options: EngineCallsOptions<Beat, Verdict>;
  #gathered: Beat[] = [];
  #calls = 0;
  #late = 0;

  constructor(options: EngineCallsOptions<Beat, Verdict>) {
    this.#options = options;
  }

  get isIdle(): boolean {
    return this.#gathered.length === 0 && this.#calls === 0 && this.#late === 0;
  }

  get mayFlush(): boolean {
    return this.#gathered.length > 0 && this.#calls < callsMax;
  }

  gather(beats: Beat[]): void {
    if (this.#gathered.length === 0) this.#gathered = beats;
    else for (const beat of beats) this.#gathered.push(beat);
  }

  /** Puts heartbeats back in front of the gathered ones. */
  putBack(beats: readonly Beat[]): void {
    this.#gathered = [...beats, ...this.#gathered];
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

  async #call(beats: readonly Beat[]): Promise<void> {
    this.#calls++;
    try {
      this.#receive(beats, await this.#options.heartbeatEach(beats));
    } catch (error) {
      this.#options.onMissed(beats, error);
    } finally {
      this.#calls--;
      this.#options.onDone();
    }
  }

  #receive(beats: readonly Beat[], verdicts: readonly (Verdict | Promise<Verdict>)[]): void {
    const late = new Set<number>();
    for (let i = 0; i < verdicts.length; i++) if (verdicts[i] instanceof Promise) late.add(i);
    if (late.size === 0) {
      this.#options.onSettled(beats, verdicts as readonly Verdict[]);
      return;
    }
    for (const i of late) void this.#receiveLater(beats[i] as Beat, verdicts[i] as Promise<Verdict>);
    const isThere = (_: unknown, i: number) => !late.has(i);
    this.#options.onSettled(beats.filter(isThere), verdicts.filter(isThere) as Verdict[]);
  }

  async #receiveLater(beat: Beat, verdict: Promise<Verdict>): Promise<void> {
    this.#late++;
    try {
      this.#options.onSettled([beat], [await verdict]);
    } catch (error) {
      this.#options.onLateMissed(beat, error);
    } finally {
      this.#late--;
      this.#options.onDone();
    }
  }
}
