/** How tests speak to the worker contract, and what they hold every answer to. */
import { expect } from 'chai';
import { type Answer, type Body, post, submit } from './jobs-api.ts';
import type { TestServer } from './server.ts';

export const workerPath = '/internal/worker';

let streams = 0;

/** A stream that no other test has. */
export const newStream = (): string => `stream-${++streams}`;

/** A job of a stream, to be tried again at once where it fails. */
export const enqueue = (server: TestServer, stream: string, fields: object = {}): Promise<Body> =>
  submit(server, { stream, cost_units: 1, retry_backoff_s: 0, ...fields });

/** A claim of worker-1, unless another is named or the text says it all. */
export const claimFrom = (server: TestServer, streams: string[], fields: object = {}): Promise<Answer> =>
  post(server, `${workerPath}/claim`, { worker_id: 'worker-1', streams, max_wait_ms: 0, ...fields });

/** A job that is there. */
export async function claimedFrom(server: TestServer, streams: string[], fields: object = {}): Promise<Body> {
  const { status, text, body } = await claimFrom(server, streams, fields);
  expect(status, text).to.equal(200);
  expect(body.claimed, text).to.equal(true);
  return body;
}

/** A job of a stream of its own, claimed by worker-1. */
export async function runningJob(server: TestServer, fields: object = {}): Promise<Body & { name: string }> {
  const name = newStream();
  await enqueue(server, name, fields);
  return { ...(await claimedFrom(server, [name])), name };
}

/** What a worker says of its job in every request. */
export const ownerOf = ({ job_id, attempt_id, lease_token, stream }: Body) => ({
  worker_id: 'worker-1',
  job_id,
  attempt_id,
  lease_token,
  stream: stream.name,
  message_id: stream.message_id,
});

export const beat = (server: TestServer, claim: Body, fields: object = {}): Promise<Answer> => {
  const { worker_id, job_id, lease_token } = ownerOf(claim);
  return post(server, `${workerPath}/heartbeat`, { worker_id, job_id, lease_token, ...fields });
};

export const complete = (server: TestServer, claim: Body, fields: object = {}): Promise<Answer> =>
  post(server, `${workerPath}/complete`, { ...ownerOf(claim), result: null, ...fields });

export const fail = (server: TestServer, claim: Body, fields: object = {}): Promise<Answer> => {
  const error = { code: 'E_BROKEN', message: 'it broke', stack: 'at line 1', retryable: true };
  return post(server, `${workerPath}/fail`, { ...ownerOf(claim), error, ...fields });
};
