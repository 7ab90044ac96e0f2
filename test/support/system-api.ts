/** How tests speak to the request and heartbeat contracts, and what they hold every answer to. */
import { expect } from 'chai';
import { type Answer, type Body, cancel, expectTime, expectUuid, get, only, post } from './jobs-api.ts';
import type { TestServer } from './server.ts';

export const systemPath = '/api/system/scheduler';

export const submitSystem = (server: TestServer, body: unknown): Promise<Answer> =>
  post(server, `${systemPath}/jobs`, body);

/** A job that is there. */
export async function systemJob(server: TestServer, fields: object = {}): Promise<Body> {
  const { status, text, body } = await submitSystem(server, {
    type: 'generic',
    requested_units: 4,
    ...fields,
  });
  expect(status, text).to.equal(201);
  return body.job;
}

export const readSystem = async (server: TestServer, jobId: string): Promise<Body> =>
  (await get(server, `${systemPath}/jobs/${jobId}`)).body;

/** A request for work of worker-123, unless another is named or the text says it all. */
export const request = (server: TestServer, body: unknown = {}): Promise<Answer> =>
  post(server, `${systemPath}/leases/request`, withWorker(body));

export const beat = (server: TestServer, leaseId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${systemPath}/leases/${leaseId}/heartbeat`, withWorker(body));

export const complete = (server: TestServer, leaseId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${systemPath}/leases/${leaseId}/complete`, withWorker(body));

export const fail = (server: TestServer, leaseId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${systemPath}/leases/${leaseId}/fail`, withWorker(body));

const withWorker = (body: unknown): unknown =>
  typeof body === 'string' ? body : { worker_id: 'worker-123', ...(body as object) };

/** A job and its lease, which have to be there. */
export async function granted(server: TestServer, fields: object = {}): Promise<{ lease: Body; job: Body }> {
  const { status, text, body } = await request(server, fields);
  expect(status, text).to.equal(200);
  expect(body.denied, text).to.equal(false);
  return body;
}

let addons = 0;

/** A job of a submitter that no other test has, leased by worker-123. */
export async function grantedJob(
  server: TestServer,
  fields: object = {},
): Promise<{ lease: Body; job: Body }> {
  const addon_id = `system-${++addons}`;
  await systemJob(server, { addon_id, ...fields });
  return granted(server, { addon_id });
}

/** Ends everything that these jobs may still take, so that the next test finds an empty queue. */
export async function clearAway(server: TestServer, jobIds: string[]): Promise<void> {
  for (const jobId of jobIds.splice(0)) {
    await cancel(server, jobId);
    const { job } = await readSystem(server, jobId);
    if (job.state !== 'leased' && job.state !== 'running') continue;
    const { lease } = (await get(server, `/api/scheduler/lease/${job.lease_id}`)).body;
    const answer = await complete(server, job.lease_id, { worker_id: lease.worker_id });
    expect(answer.status, answer.text).to.equal(200);
  }
}

/** All the fields that the contract gives a job. */
export const systemJobFields = [
  'job_id',
  'type',
  'priority',
  'requested_units',
  'unique',
  'state',
  'payload',
  'idempotency_key',
  'tags',
  'max_runtime_s',
  'lease_id',
  'created_at',
  'updated_at',
];

/** All the fields that the contract gives a lease. */
export const systemLeaseFields = [
  'lease_id',
  'job_id',
  'worker_id',
  'capacity_units',
  'issued_at',
  'expires_at',
  'last_heartbeat',
];

/** Compares the contract's part of a job, its id and its times aside, which are checked for what they are. */
export function expectSystemJob(job: Body, expected: Body): void {
  expect(job).to.include.all.keys(...systemJobFields);
  expectUuid(job.job_id);
  expectTime(job.created_at);
  expectTime(job.updated_at);
  const { job_id, created_at, updated_at } = job;
  expect(only(job, systemJobFields)).to.deep.equal({ job_id, created_at, updated_at, ...expected });
}
