/** Shared parts of commands that call a server: its address, and the requests. */
import type { IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { CredentialError, certificatesOf, credentialHeaders, credentialOf } from './credentials.ts';

/** The environment variable with the server's address. The flag `--url` has precedence. */
export const urlVariable = 'LEASEHOLD_URL';
export const defaultUrl = 'http://127.0.0.1:8080';

export const urlHelp = `  --url <address>       The HTTP address of the server. The default is
                        ${urlVariable}, or else ${defaultUrl}.`;

/** An error answer of the server, or no answer. Its text is for people; the command exits with 1. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  /** The code of the server's error; undefined where the server did not answer. */
  readonly code: string | undefined;

  /** The server has not processed the request, so a later attempt may succeed. */
  get isUnreachable(): boolean {
    return this.code === undefined || this.code === 'unavailable' || this.code === 'overloaded';
  }

  constructor(message: string, { code, cause }: { code?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause });
    this.code = code;
  }
}

export interface HttpClientOptions {
  /** The limit of the time to the answer; unlimited where it is omitted. */
  timeoutMs?: number;
}

/**
 * Uses `node:http`, because `fetch` takes 30 ms to load, and commands start often. An import of that module
 * would load `fetch` too, because it exports classes of it; `getBuiltinModule` does not.
 */
export class HttpClient {
  /** The server's address. */
  readonly url: string;
  readonly #timeoutMs: number | undefined;

  constructor(url: string | undefined, { timeoutMs }: HttpClientOptions = {}) {
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

  /** Returns any answer, including error answers. */
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
      // Not a missing server: a guard must not go on without its leases.
      if (cause instanceof CredentialError)
        throw new ServerError(cause.message, { code: 'unauthenticated', cause });
      throw new ServerError(`there is no server at ${this.url}: ${reasonOf(cause)}`, { cause });
    });
  }

  async #send(method: string, path: string, body?: string): Promise<{ status: number; said: string }> {
    const url = new URL(`${this.url}${path}`);
    const request = requestFor(url);
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
    const content = body === undefined ? {} : { 'content-type': 'application/json', ...length };
    const headers = { ...content, ...credentialHeaders(url, credentialOf()) };
    const certificates = url.protocol === 'https:' ? certificatesOf() : {};
    const signal = this.#timeoutMs === undefined ? {} : { signal: AbortSignal.timeout(this.#timeoutMs) };
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request(url, { method, headers, ...certificates, ...signal }, resolve)
        .on('error', reject)
        .end(body);
    });
    return { status: response.statusCode ?? 0, said: await text(response) };
  }
}

const requestFor = ({ protocol }: URL): typeof request =>
  process.getBuiltinModule(protocol === 'https:' ? 'node:https' : 'node:http').request;

/** An answer that is not JSON comes from another program. */
function readAnswer<T>(said: string, url: string): T {
  try {
    return (said === '' ? undefined : JSON.parse(said)) as T;
  } catch (cause) {
    throw new ServerError(`what answers at ${url} is no Leasehold`, { cause });
  }
}

/** Why there is no answer. Some errors have a code and no message; an abort has its reason as the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { name, code, cause, message } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' && cause instanceof Error) return cause.message;
  return message || code || name;
}

/** The code and text of an error answer. A proxy in front of the server may answer in another format. */
function refusalIn(text: string): { code?: string; detail?: string } {
  try {
    const { code, detail, message } = JSON.parse(text) as Record<string, unknown>;
    // Connect has codes of its own; its message begins with the server's code.
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
