/**
 * One stream's calls to the engine for signs of life of one kind: gathered while as many calls are under way as may be,
 * and then sent in pieces that the engine takes in one batch.
 *
 * Promises: every sign of life that is gathered is settled, missed, or dropped with `clear`, once. What the engine can say
 * at once is settled at once; what it will say later, of rows that somebody has locked, is not waited for.
 */

/** Signs of life in one call to the engine: what it takes in one batch. */
export const heartbeatsPerCall = 2_000;
/** Calls of one kind: enough for the next batch to be full while one is in flight. */
const callsMax = 4;

export interface EngineCallsOptions<Beat, Verdict> {
  beatEach(beats: readonly Beat[]): Promise<readonly (Verdict | Promise<Verdict>)[]>;
  onSettled(beats: readonly Beat[], verdicts: readonly Verdict[]): void;
  /** The engine has failed. */
  onMissed(beats: readonly Beat[], error: unknown): void;
  /** A verdict that was to come later will not. */
  onLateMissed(beat: Beat, error: unknown): void;
  /** A call is over, or a late verdict is there or will not come. */
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

  /** They go first when there is boarding again. */
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
      this.#receive(beats, await this.#options.beatEach(beats));
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
