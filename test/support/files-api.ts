/** How tests speak to the file contract, and what they hold every answer to. */
import { expect } from 'chai';
import { letFileTimePass } from './files.ts';
import { type Answer, type Body, expectTime, expectUuid, get, post } from './jobs-api.ts';
import type { TestServer } from './server.ts';

export const filesPath = '/api/files';
export const repository = 'git@example.org:team/project.git';

let owners = 0;
let paths = 0;

/** An owner, and a path, that no other test has. */
export const newOwner = (): string => `agent-${++owners}`;
export const newPath = (): string => `src/module-${++paths}/index.ts`;

export const acquire = (
  server: TestServer,
  ownerId: string,
  wanted: readonly string[],
  more: object = {},
): Promise<Answer> =>
  post(server, `${filesPath}/acquire`, { owner_id: ownerId, repository, paths: wanted, ...more });

/** The body of an acquisition that has to come out like this. */
export async function acquired(
  server: TestServer,
  outcome: 'granted' | 'contended' | 'halted',
  ownerId: string,
  wanted: readonly string[],
  more: object = {},
): Promise<Body> {
  const { status, text, body } = await acquire(server, ownerId, wanted, more);
  expect(status, text).to.equal(200);
  expect(body.outcome, text).to.equal(outcome);
  return outcome === 'granted'
    ? body.leases
    : outcome === 'contended'
      ? body.contention
      : body.blocker_report;
}

export const beat = (server: TestServer, ownerId: string): Promise<Answer> =>
  post(server, `${filesPath}/heartbeat`, { owner_id: ownerId });

export const release = (server: TestServer, ownerId: string, more: object = {}): Promise<Answer> =>
  post(server, `${filesPath}/release`, { owner_id: ownerId, repository, reason: 'COMMITTED', ...more });

export const say = (
  server: TestServer,
  ownerId: string,
  what: 'stop' | 'activity' | 'end',
): Promise<Answer> => post(server, `${filesPath}/owners/${encodeURIComponent(ownerId)}/${what}`, {});

export const instruct = (server: TestServer, contentionId: string, body: unknown): Promise<Answer> =>
  post(server, `${filesPath}/blockers/${contentionId}/instruct`, body);

export const leasesOf = async (server: TestServer, ownerId: string): Promise<Body[]> =>
  (await get(server, `${filesPath}/leases?owner_id=${encodeURIComponent(ownerId)}`)).body.leases;

export const blockersOf = async (server: TestServer, ownerId: string): Promise<Body[]> =>
  (await get(server, `${filesPath}/blockers?owner_id=${encodeURIComponent(ownerId)}`)).body.blockers;

/** Time passes, in which these owners are heard and all others are silent. */
export async function pass(server: TestServer, ms: number, alive: readonly string[]): Promise<void> {
  const stepMs = 45_000;
  for (let left = ms; left > 0; left -= stepMs) {
    await letFileTimePass(server.database, Math.min(left, stepMs));
    for (const ownerId of alive) {
      const { status, text } = await beat(server, ownerId);
      expect(status, text).to.equal(200);
    }
  }
}

/** A path that `holder` has and that `waiter` was denied, whose request may say more. */
export async function contendedPath(
  server: TestServer,
  more: object = {},
): Promise<{ holder: string; waiter: string; path: string; contention: Body }> {
  const [holder, waiter, path] = [newOwner(), newOwner(), newPath()];
  await acquired(server, 'granted', holder, [path], { owner: { agent: 'coder', pid: 42 } });
  const contention = await acquired(server, 'contended', waiter, [path], more);
  return { holder, waiter, path, contention };
}

/** A path that `holder` has and for which `waiter` has halted. */
export async function haltedPath(
  server: TestServer,
): Promise<{ holder: string; waiter: string; path: string; report: Body }> {
  const { holder, waiter, path } = await contendedPath(server);
  await pass(server, 181_000, [holder, waiter]);
  const report = await acquired(server, 'halted', waiter, [path]);
  return { holder, waiter, path, report };
}

/** The record that the contract defines. */
export function expectFileLease(lease: Body, expected: object): void {
  expect(lease).to.include.all.keys(
    'repository',
    'path',
    'owner_id',
    'lease_state',
    'acquired_at',
    'last_heartbeat_at',
    'expires_at',
    'fence',
  );
  expect(lease).to.include({ repository, ...expected });
  for (const time of [lease.acquired_at, lease.last_heartbeat_at]) expectTime(time);
  expect(Number.isSafeInteger(lease.fence) && lease.fence > 0, `the fence ${lease.fence}`).to.equal(true);
}

/** The event that the contract wants of a denial. */
export function expectContention(contention: Body, expected: { path: string; holder: string }): void {
  expectUuid(contention.contention_id);
  expect(Date.parse(contention.retry_at) - Date.parse(contention.denied_at)).to.equal(180_000);
  expect(contention.retry_after_ms).to.be.within(0, 180_000);
  const [blocker] = contention.blockers;
  expect(blocker).to.include({ path: expected.path, owner_id: expected.holder });
  expect(blocker.owner).to.have.all.keys('agent', 'host', 'pid', 'branch', 'parent_owner_id');
  expectTime(blocker.acquired_at, { withinMs: 3_600_000 });
  expectTime(blocker.last_heartbeat_at, { withinMs: 3_600_000 });
  expect(blocker.age_ms).to.be.at.least(0);
}
