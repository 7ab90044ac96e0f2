/** How tests speak to the queue contract's Leases API and to its capacity, and what they hold every lease to. */
import { expect } from 'chai';
import {
  type Answer,
  ask,
  type Body,
  claimedJob,
  eventsOf,
  expectTime,
  expectUuid,
  get,
  only,
  post,
} from './jobs-api.ts';
import type { TestServer } from './server.ts';

export { nowhere } from './jobs-api.ts';

export const leasePath = '/api/scheduler/lease';
export const capacityPath = '/api/scheduler/stats/capacity';

/** Room for every job of a describe block, so that its tests need not give back what they took. */
export const plenty = 1_000_000;

export const requestLease = (server: TestServer, body: unknown): Promise<Answer> =>
  post(server, `${leasePath}/request`, body);

export const heartbeat = (server: TestServer, leaseId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${leasePath}/${leaseId}/heartbeat`, withWorker(body));

export const release = (server: TestServer, leaseId: string, body: unknown = {}): Promise<Answer> =>
  post(server, `${leasePath}/${leaseId}/release`, withWorker(body, { status: 'SUCCEEDED' }));

/** The worker that `claimedJob` claims for, where the body is an object and names no other. */
const withWorker = (body: unknown, more: object = {}): unknown =>
  typeof body === 'string' ? body : { worker_id: 'worker-1', ...more, ...(body as object) };

export const readLease = async (server: TestServer, leaseId: string): Promise<Body> =>
  (await get(server, `${leasePath}/${leaseId}`)).body.lease;

/** A job that worker-1 has claimed and leased, and the lease with its token. */
export async function leasedJob(
  server: TestServer,
  fields: object = {},
  request: object = {},
): Promise<{ lease: Body; job: Body }> {
  const { job_id } = await claimedJob(server, fields);
  const { status, text, body } = await requestLease(server, { job_id, ...request });
  expect(status, text).to.equal(200);
  expect(body.approved, text).to.equal(true);
  return { lease: body.lease, job: body.job };
}

export const capacityOf = async (server: TestServer): Promise<Body> => (await get(server, capacityPath)).body;

export const setCapacity = (server: TestServer, body: unknown): Promise<Answer> =>
  ask(server, capacityPath, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

/** All the fields that the contract gives a Lease. */
export const leaseFields = [
  'lease_id',
  'job_id',
  'addon_id',
  'cost_units',
  'ttl_sec',
  'state',
  'granted_at',
  'last_heartbeat_at',
  'expires_at',
];

/** Compares the contract's part of a lease, its id and its times aside, which are checked for what they are. */
export function expectLease(lease: Body, expected: Body): void {
  expect(lease).to.include.all.keys(...leaseFields, 'worker_id', 'fence', 'attempt');
  expectUuid(lease.lease_id);
  for (const time of [lease.granted_at, lease.last_heartbeat_at]) expectTime(time);
  expect(lease.fence).to.be.a('number');
  expect(Number.isSafeInteger(lease.fence) && lease.fence > 0, `the fence ${lease.fence}`).to.equal(true);
  const { lease_id, granted_at, last_heartbeat_at, expires_at } = lease;
  const own = { lease_id, granted_at, last_heartbeat_at, expires_at };
  expect(only(lease, leaseFields)).to.deep.equal({ ...own, ...expected });
}

/** Holds a replayed grant to the first answer. `heartbeat_within_ms` counts from the replay, and says what is left. */
export function expectReplay(again: Body, first: Body): void {
  const { heartbeat_within_ms: left, ...rest } = again;
  const { heartbeat_within_ms: atFirst, ...firstRest } = first;
  expect(rest).to.deep.equal(firstRest);
  expect(left).to.be.within(atFirst - 5_000, atFirst);
}

/** The distance of two times of an answer, in milliseconds. */
export const between = (from: string, to: string): number => Date.parse(to) - Date.parse(from);

/** The types of a job's events, oldest first. */
export const typesOf = async (server: TestServer, jobId: string): Promise<string[]> =>
  (await eventsOf(server, jobId)).map(({ type }) => type);
