/**
 * Cross-origin resource sharing: lets the web pages of listed origins call this server and read its answers.
 *
 * Guarantees: without a listed origin no header is sent. Only an exact origin is answered with its name, and
 * credentials of the browser are never allowed: such a page sends its own `authorization`. A preflight needs
 * no credential, because browsers send none with it, and executes nothing.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { cors } from '@connectrpc/connect';

/** How long a browser may keep the answer of a preflight. Chromium keeps none for longer than two hours. */
const maxAgeS = 7_200;

const allowedMethods = [...cors.allowedMethods, 'PUT'].join(', ');
const allowedHeaders = [...cors.allowedHeaders, 'authorization'].join(', ');
const exposedHeaders = [...cors.exposedHeaders, 'retry-after', 'www-authenticate'].join(', ');

export class Cors {
  readonly #origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins);
  }

  allows(origin: string | undefined): boolean {
    return origin !== undefined && this.#origins.has(origin);
  }

  /** Sets the headers that every answer needs, refusals too: a page could not read the refusal otherwise. */
  begin({ headers: { origin } }: IncomingMessage, response: ServerResponse): void {
    if (this.#origins.size === 0) return;
    response.setHeader('vary', 'origin');
    if (origin === undefined || !this.#origins.has(origin)) return;
    response.setHeader('access-control-allow-origin', origin);
    response.setHeader('access-control-expose-headers', exposedHeaders);
  }

  /** Answers the preflight of a listed origin, and returns whether the request is one. */
  answersPreflight({ method, headers }: IncomingMessage, response: ServerResponse): boolean {
    if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
    if (!this.allows(headers.origin)) return false;
    response.writeHead(204, {
      'access-control-allow-methods': allowedMethods,
      'access-control-allow-headers': allowedHeaders,
      'access-control-max-age': String(maxAgeS),
    });
    response.end();
    return true;
  }
}
