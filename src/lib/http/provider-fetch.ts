/**
 * `fetch` for a library that talks to an identity provider. The `fetch` of Node can be given no private
 * authority. Redirects are not followed, and an answer has at most a mebibyte.
 */
import { type IncomingMessage, request as plainRequest } from 'node:http';
import { request as secureRequest } from 'node:https';

const bytesMax = 1024 * 1024;

/** The provider was not reached, or did not answer in time. */
export class ProviderAwayError extends Error {
  override readonly name = 'ProviderAwayError';
}

export interface ProviderRequest {
  method: string;
  headers: Record<string, string>;
  body: unknown;
  signal?: AbortSignal | undefined;
}

/** `ca` are the authorities of the provider's certificate, in PEM; by default those of Node. */
export const providerFetch =
  (ca: Buffer | undefined) =>
  (url: string, { method, headers, body, signal }: ProviderRequest): Promise<Response> =>
    new Promise((resolve, reject) => {
      const request = url.startsWith('https:') ? secureRequest : plainRequest;
      const text = body == null ? undefined : String(body);
      const length = text === undefined ? {} : { 'content-length': String(Buffer.byteLength(text)) };
      const options = { method, headers: { ...headers, ...length }, agent: false, ...(ca ? { ca } : {}) };
      request(url, signal ? { ...options, signal } : options, (answer) => {
        responseOf(answer).then(resolve, reject);
      })
        .on('error', (cause) => reject(new ProviderAwayError(cause.message, { cause })))
        .end(text);
    });

async function responseOf(answer: IncomingMessage): Promise<Response> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > bytesMax) {
      answer.destroy();
      throw new Error(`the answer has more than ${bytesMax} bytes`);
    }
    chunks.push(chunk);
  }
  const status = answer.statusCode ?? 500;
  const headers = new Headers(
    Object.entries(answer.headersDistinct).flatMap(([name, values = []]) =>
      values.map((value): [string, string] => [name, value]),
    ),
  );
  // A response with these statuses has no body.
  return new Response([204, 205, 304].includes(status) ? null : Buffer.concat(chunks), { status, headers });
}
