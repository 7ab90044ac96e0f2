/**
 * Fetches a small text over HTTP. `fetch` could not be given a private authority. Redirects are not followed.
 */
import { type IncomingMessage, request as plainRequest } from 'node:http';
import { request as secureRequest } from 'node:https';

export interface FetchTextOptions {
  /** The authorities of the server's certificate, in PEM; by default those of Node. */
  ca?: Buffer | undefined;
  bytesMax: number;
  /** Ends the request; a timeout is part of it. */
  signal: AbortSignal;
}

export function fetchText(url: URL, { ca, bytesMax, signal }: FetchTextOptions): Promise<string> {
  const request = url.protocol === 'https:' ? secureRequest : plainRequest;
  return new Promise((resolve, reject) => {
    const options = { headers: { accept: 'application/json' }, signal, agent: false, ...(ca ? { ca } : {}) };
    request(url, options, (response) => {
      if (response.statusCode === 200) readText(response, bytesMax).then(resolve, reject);
      else {
        response.resume();
        reject(new Error(`the answer has the status ${response.statusCode}`));
      }
    })
      .on('error', (error) => reject(signal.aborted ? reasonOf(signal) : error))
      .end();
  });
}

const reasonOf = ({ reason }: AbortSignal): Error =>
  reason instanceof Error && reason.name === 'TimeoutError' ? new Error('no answer in time') : reason;

async function readText(response: IncomingMessage, bytesMax: number): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > bytesMax) {
      response.destroy();
      throw new Error(`the answer has more than ${bytesMax} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
