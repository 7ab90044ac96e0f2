/** What commands that speak to a server have in common: where it is, and how it is asked. */

/** The variable and the flag `--url` that say where the server is. */
const urlVariable = 'LEASEHOLD_URL';
const defaultUrl = 'http://127.0.0.1:8080';

export const urlHelp = `  --url <address>       Where the server's HTTP is; ${defaultUrl} where neither this nor
                        ${urlVariable} says otherwise.`;

/** What a server refused, or that there is none. Its text is for people; the command ends with exit code 1. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  /** The code of a refusal; undefined where the server did not answer. */
  readonly code: string | undefined;

  constructor(message: string, { code, cause }: { code?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause });
    this.code = code;
  }
}

export class ServerClient {
  readonly #url: string;

  constructor(url: string | undefined) {
    this.#url = (url || process.env[urlVariable] || defaultUrl).replace(/\/+$/, '');
  }

  get<T>(path: string): Promise<T> {
    return this.#ask(path, {});
  }

  post<T>(path: string, body: object): Promise<T> {
    return this.#ask(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  async #ask<T>(path: string, init: RequestInit): Promise<T> {
    const response = await fetch(`${this.#url}${path}`, init).catch((cause: unknown) => {
      throw new ServerError(`there is no server at ${this.#url}: ${reasonOf(cause)}`, { cause });
    });
    const text = await response.text();
    if (response.ok) return answerIn(text, this.#url) as T;
    const { code, detail } = refusalIn(text);
    throw new ServerError(detail ?? `the server answered ${response.status}`, { code });
  }
}

/** What `fetch` says is always the same; the reason is behind it. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (!(cause instanceof Error)) return String(cause);
  return cause.message || (cause as NodeJS.ErrnoException).code || cause.name;
}

function answerIn(text: string, url: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ServerError(`what answers at ${url} is no Leasehold server`, { cause });
  }
}

/** What a server says of itself when it refuses; what stands before it may speak otherwise. */
function refusalIn(text: string): { code?: string; detail?: string } {
  try {
    const { code, detail } = JSON.parse(text) as Record<string, unknown>;
    return {
      ...(typeof code === 'string' ? { code } : {}),
      ...(typeof detail === 'string' ? { detail } : {}),
    };
  } catch {
    return {};
  }
}
