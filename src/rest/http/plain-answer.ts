/** Answers as text, for a connection on which Node does not answer. */
import type { RestResponse } from '../../lib/http/response.ts';

/** The answer where Node's parser rejects the bytes, before there is a request object. */
export function unreadableRequest(error: Error & { code?: string }): string {
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    const detail = 'request: did not arrive in time';
    return plainAnswer('408 Request Timeout', { detail, code: 'invalid_request', field: 'request' });
  }
  const status =
    error.code === 'HPE_HEADER_OVERFLOW' ? '431 Request Header Fields Too Large' : '400 Bad Request';
  const detail = `request: is not HTTP that can be read (${error.code ?? error.message})`;
  return plainAnswer(status, { detail, code: 'invalid_request', field: 'request' });
}

/** A complete HTTP answer as text, for a connection on which Node does not answer. */
export function plainAnswer(status: string, body: object, headers: RestResponse['headers'] = {}): string {
  const text = JSON.stringify(body);
  const all = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(text)),
    connection: 'close',
    ...headers,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  return `HTTP/1.1 ${status}\r\n${lines.join('\r\n')}\r\n\r\n${text}`;
}
