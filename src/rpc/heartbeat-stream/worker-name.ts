import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { checkName } from '../wire/frame-fields.ts';
import type { WireReader } from '../wire/reader.ts';

/**
 * Remembers the last worker's name, because most streams have one worker, which repeats it in every
 * heartbeat.
 */
export class WorkerName {
  #bytes = new Uint8Array(0);
  #name = '';
  #problem: DomainError | undefined = attempt(() => checkName('', 'worker_id'));

  /** The name from `start` to `end`, checked, or the reason why it is invalid. */
  read(reader: WireReader, start: number, end: number): string | DomainError {
    if (this.#isSame(reader.bytes, start, end)) return this.#problem ?? this.#name;
    const name = reader.text(start, end);
    const problem = attempt(() => checkName(name, 'worker_id'));
    // A text that is too long for a name is not kept in memory.
    if (end - start <= limits.nameChars) {
      this.#bytes = Uint8Array.from(reader.bytes.subarray(start, end));
      this.#name = name;
      this.#problem = problem;
    }
    return problem ?? name;
  }

  #isSame(bytes: Uint8Array, start: number, end: number): boolean {
    const known = this.#bytes;
    if (known.length !== end - start) return false;
    for (let i = 0; i < known.length; i++) if (known[i] !== bytes[start + i]) return false;
    return true;
  }
}

/** The error of a check, instead of throwing it. */
export function attempt(check: () => void): DomainError | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof DomainError) return error;
    throw error;
  }
}
