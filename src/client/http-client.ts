/** What commands that speak to a server have in common: where it is, and how it is asked. */
import type { IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';

/** The variable and the flag `--url` that say where the server is. */
export const urlVariable = 'LEASEHOLD_URL';
export const defaultUrl = 'http://127.0.0.1:8080';

export const urlHelp = `  --url <address>       Where the server's HTTP is; ${defaultUrl} where neither this nor
                        ${urlVariable} says otherwise.`;

/** What a server refused, or that there is none. Its text is for people; the command ends with exit code 1. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  /** The code of a refusal; undefined where the server did not answer. */
  readonly code: string | undefined;

  /** Nobody has looked at the request: to ask again later may help. */
  get isUnreachable(): boolean {
    return this.code === undefined || this.code === 'unavailable' || this.code === 'overloaded';
  }

  constructor(message: string, { code, cause }: { code?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause });
    this.code = code;
  }
}

export interface ServerClientOptions {
  /** How long an answer may take; for ever where left out. */
  timeoutMs?: number;
}

/**
 * Asks with `node:http`, because `fetch` takes 30 ms to load, and commands start often. To import that module would load
 * `fetch` too, as it exports classes of it; `getBuiltinModule` does not.
 */
export class ServerClient {
  /** Where the server is. */
  readonly url: string;
  readonly #timeoutMs: number | undefined;

  constructor(url: string | undefined, { timeoutMs }: ServerClientOptions = {}) {
    this.url = (url || process.env[urlVariable] || defaultUrl).replace(/\/+$/, '');
    this.#timeoutMs = timeoutMs;
  }

  get<T>(path: string): Promise<T> {
    return this.#ask('GET', path);
  }

  post<T>(path: string, body: object): Promise<T> {
    return this.#ask('POST', path, JSON.stringify(body));
  }

  put<T>(path: string, body: object): Promise<T> {
    return this.#ask('PUT', path, JSON.stringify(body));
  }

  /** Whatever is answered, also where it is a refusal. */
  async look(path: string): Promise<{ status: number; said: string }> {
    return this.#reach('GET', path);
  }

  async #ask<T>(method: string, path: string, body?: string): Promise<T> {
    const { status, said } = await this.#reach(method, path, body);
    if (status >= 200 && status < 300) return readAnswer<T>(said, this.url);
    const { code, detail } = refusalIn(said);
    throw new ServerError(detail ?? `the server answered ${status}`, { code });
  }

  #reach(method: string, path: string, body?: string): Promise<{ status: number; said: string }> {
    return this.#send(method, path, body).catch((cause: unknown) => {
      throw new ServerError(`there is no server at ${this.url}: ${reasonOf(cause)}`, { cause });
    });
  }

  async #send(method: string, path: string, body?: string): Promise<{ status: number; said: string }> {
    const url = new URL(`${this.url}${path}`);
    const request = requestFor(url);
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
    const headers = body === undefined ? {} : { 'content-type': 'application/json', ...length };
    const signal = this.#timeoutMs === undefined ? {} : { signal: AbortSignal.timeout(this.#timeoutMs) };
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request(url, { method, headers, ...signal }, resolve)
        .on('error', reject)
        .end(body);
    });
    return { status: response.statusCode ?? 0, said: await text(response) };
  }
}

const requestFor = ({ protocol }: URL): typeof request =>
  process.getBuiltinModule(protocol === 'https:' ? 'node:https' : 'node:http').request;

/** A server that answers something else is another server. */
function readAnswer<T>(said: string, url: string): T {
  try {
    return (said === '' ? undefined : JSON.parse(said)) as T;
  } catch (cause) {
    throw new ServerError(`what answers at ${url} is no Leasehold`, { cause });
  }
}

/** Why there is no answer. Some errors say nothing, and have a code; an abort has its reason behind it. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { name, code, cause, message } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' && cause instanceof Error) return cause.message;
  return message || code || name;
}

/** What a server says of itself when it refuses; what stands before it may speak otherwise. */
function refusalIn(text: string): { code?: string; detail?: string } {
  try {
    const { code, detail, message } = JSON.parse(text) as Record<string, unknown>;
    // Connect has codes of its own, and ours at the beginning of its message.
    const [, own, words] = (typeof message === 'string' && /^([a-z_]+): (.+)$/s.exec(message)) || [];
    if (own !== undefined && words !== undefined) return { code: own, detail: words };
    return {
      ...(typeof code === 'string' ? { code } : {}),
      ...(typeof detail === 'string' ? { detail } : {}),
    };
  } catch {
    return {};
  }
}
