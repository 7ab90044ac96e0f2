/**
 * How many calls are not answered yet. A server that stops needs to know: a connection stays open for as long as a
 * client has not ended its half of a stream, though all has been said on it.
 */
export class OpenCalls {
  #open = 0;
  #onNone: (() => void) | undefined;

  begin(): void {
    this.#open++;
  }

  end(): void {
    this.#open--;
    if (this.#open === 0) this.#onNone?.();
  }

  /** Settles as soon as no call is open. */
  async none(): Promise<void> {
    if (this.#open === 0) return;
    await new Promise<void>((resolve) => {
      this.#onNone = resolve;
    });
  }
}
