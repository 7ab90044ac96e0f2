/** Counts the calls that are not answered yet, so that a server that stops can wait for them. */
export class WaitGroup {
  #open = 0;
  #onNone: (() => void)[] = [];

  add(): void {
    this.#open++;
  }

  done(): void {
    this.#open--;
    if (this.#open === 0) for (const settle of this.#onNone.splice(0)) settle();
  }

  /** Settles as soon as no call is open. */
  wait(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onNone.push(resolve));
  }
}
