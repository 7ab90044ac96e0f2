/** What every test on bad input holds the server to: an error in the contract's shape, and no harm done. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect } from 'chai';
import { type Answer, ask, type Body, jobsPath, read, submit } from './jobs-api.ts';
import { leasePath, nowhere } from './leases-api.ts';
import type { TestServer } from './server.ts';
import { systemPath } from './system-api.ts';

/** A client error with `detail` and `code`, and the field at fault where there is one. */
export function expectRefusal(answer: Answer, status: number, code: string, field?: string): void {
  const { body, text } = answer;
  expect(answer.status, text).to.equal(status);
  expect(answer.headers.get('content-type'), text).to.match(/^application\/json/);
  expect(body.code, text).to.equal(code);
  expect(body.detail, text).to.be.a('string').and.not.to.equal('');
  expect(text).not.to.match(/\bat .*\.(ts|js):\d+|node:internal|select |insert |pg_/i);
  if (field === undefined) return;
  expect(body.field, text).to.be.a('string');
  const [top] = body.field.split(/[.[]/, 1);
  expect(top, text).to.equal(field);
  expect(body.detail, text).to.include(field);
}

/** The server still serves, and nothing that it met was a mistake of its own. */
export async function expectUnharmed(server: TestServer): Promise<void> {
  const job = await submit(server, { payload: { still: 'here' } });
  expect((await read(server, job.job_id)).job).to.deep.equal(job);
  expect(server.complaints.splice(0)).to.deep.equal([]);
  expect(({} as Body).polluted).to.equal(undefined);
}

/** Sends bytes as they are and hands back the whole answer, for what no HTTP client would send. */
export async function sendRaw(server: TestServer, ...parts: (string | Buffer)[]): Promise<Answer> {
  const { hostname, port } = new URL(server.http);
  const socket = connect(Number(port), hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  for (const part of parts) socket.write(part);
  await once(socket, 'close');
  const [head = '', text = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n', 2);
  const [line = '', ...lines] = head.split('\r\n');
  const headers = new Headers(
    lines.map((each): [string, string] => {
      const colon = each.indexOf(':');
      return [each.slice(0, colon), each.slice(colon + 1).trim()];
    }),
  );
  const json = /^application\/json/.test(headers.get('content-type') ?? '');
  return { status: Number(line.split(' ')[1]), headers, text, body: json ? JSON.parse(text) : undefined };
}

/** Posts a body under a content type, or under none. */
export const postAs = (
  server: TestServer,
  path: string,
  body: string | Buffer,
  headers: Record<string, string> = { 'content-type': 'application/json' },
): Promise<Answer> =>
  ask(server, path, {
    method: 'POST',
    headers,
    body: typeof body === 'string' ? body : new Uint8Array(body),
  });

/** The contracts' routes that take a body, and a body that each of them takes. */
export async function routesWithBody(server: TestServer): Promise<{ path: string; body: Body }[]> {
  const { job_id } = await submit(server, {});
  return [
    { path: `${jobsPath}/submit`, body: { addon_id: 'a', job_type: 't', cost_units: 1 } },
    { path: `${jobsPath}/claim`, body: { addon_id: 'nobody', worker_id: 'w' } },
    { path: `${jobsPath}/${job_id}/status`, body: { state: 'QUEUED' } },
    { path: `${jobsPath}/${job_id}/cancel`, body: {} },
    { path: `${jobsPath}/${job_id}/retry`, body: {} },
    { path: `${leasePath}/request`, body: { job_id } },
    { path: `${leasePath}/${nowhere}/heartbeat`, body: { worker_id: 'w' } },
    { path: `${leasePath}/${nowhere}/release`, body: { worker_id: 'w', status: 'FAILED' } },
    { path: `${systemPath}/jobs`, body: { type: 't', requested_units: 1 } },
    { path: `${systemPath}/leases/request`, body: { worker_id: 'w', addon_id: 'nobody' } },
    { path: `${systemPath}/leases/${nowhere}/heartbeat`, body: { worker_id: 'w' } },
    { path: `${systemPath}/leases/${nowhere}/complete`, body: { worker_id: 'w' } },
    { path: `${systemPath}/leases/${nowhere}/fail`, body: { worker_id: 'w' } },
  ];
}
