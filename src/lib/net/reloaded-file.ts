/**
 * A file of the configuration that is read again when it changes.
 *
 * Guarantees: only content that `parse` accepts is used. A new file that cannot be used leaves the old
 * content in force, and its fault is logged once.
 *
 * Lifecycle: `open` reads the file and throws if it cannot be used. `start` looks at it for changes; `stop`
 * ends that.
 */
import { readFile } from 'node:fs/promises';
import { PeriodicTask } from '../async/periodic-task.ts';
import type { Log } from '../log.ts';

/** No file of the configuration is larger. */
const bytesMax = 4 * 1024 * 1024;

export interface ReloadedFileOptions<Value> {
  /** The setting that names the file, for errors. */
  variable: string;
  path: string;
  /** Throws if the text cannot be used. */
  parse(text: string): Value;
  reloadMs: number;
  log: Log;
}

export class ReloadedFile<Value> {
  readonly #options: ReloadedFileOptions<Value>;
  readonly #rounds: PeriodicTask;
  readonly #listeners: (() => void)[] = [];
  #text: string;
  #value: Value;
  #failure: string | undefined;

  private constructor(options: ReloadedFileOptions<Value>, text: string, value: Value) {
    this.#options = options;
    this.#text = text;
    this.#value = value;
    const { reloadMs, variable, log } = options;
    this.#rounds = new PeriodicTask({
      run: async () => {
        await this.runOnce();
        return reloadMs;
      },
      onFailed: (error) => {
        if (this.#failure !== String(error))
          log.error('a file has changed and cannot be used; the old content stays in use', {
            variable,
            error,
          });
        this.#failure = String(error);
      },
      failedMs: reloadMs,
    });
  }

  static async open<Value>(options: ReloadedFileOptions<Value>): Promise<ReloadedFile<Value>> {
    const text = await read(options);
    return new ReloadedFile(options, text, parsed(options, text));
  }

  get value(): Value {
    return this.#value;
  }

  /** The last change of the file cannot be used. */
  get isFailing(): boolean {
    return this.#failure !== undefined;
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  start(): void {
    this.#rounds.start();
  }

  stop(): Promise<void> {
    return this.#rounds.stop();
  }

  /** Reads the file, and uses it if it has changed. */
  async runOnce(): Promise<void> {
    const text = await read(this.#options);
    if (text !== this.#text) {
      this.#value = parsed(this.#options, text);
      this.#text = text;
      this.#options.log.info('a file was read again', { variable: this.#options.variable });
      for (const listener of this.#listeners) listener();
    }
    this.#failure = undefined;
  }
}

async function read({ variable, path }: { variable: string; path: string }): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (cause) {
    throw new Error(`${variable}: the file cannot be read: ${(cause as Error).message}`, { cause });
  }
  if (bytes.length > bytesMax) throw new Error(`${variable}: the file has more than ${bytesMax} bytes`);
  return bytes.toString('utf8');
}

function parsed<Value>({ variable, parse }: ReloadedFileOptions<Value>, text: string): Value {
  try {
    return parse(text);
  } catch (cause) {
    throw new Error(`${variable}: ${(cause as Error).message}`, { cause });
  }
}
