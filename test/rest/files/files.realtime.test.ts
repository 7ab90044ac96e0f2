/**
 * The runtime sequence of the file contract in real time: request, be contended, wait 181 s without a
 * heartbeat, request again. All engines wait at the same time, and this file runs beside the rest of the
 * suite; see `test/support/run.ts`.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { onEveryEngine, type TestEngine } from '../../support/engines.ts';
import {
  acquired,
  beat,
  blockersOf,
  expectContention,
  expectFileLease,
  instruct,
  newOwner,
  newPath,
  release,
} from '../../support/files-api.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const waitMs = 181_000;
const beatMs = 20_000;

/** Keeps an owner alive until the test stops it; returns the number of heartbeats sent. */
async function keepAlive(server: TestServer, ownerId: string, until: AbortSignal): Promise<number> {
  for (let beats = 0; ; beats++) {
    try {
      await delay(beatMs, undefined, { signal: until });
    } catch {
      return beats;
    }
    const { status, text } = await beat(server, ownerId);
    expect(status, text).to.equal(200);
  }
}

/** Both branches of the sequence at once: one file stays held, and one is released during the wait. */
async function play(server: TestServer): Promise<void> {
  const [holder, halting, lucky, kept, given] = [newOwner(), newOwner(), newOwner(), newPath(), newPath()];
  await acquired(server, 'granted', holder, [kept, given]);
  const over = new AbortController();
  const beats = keepAlive(server, holder, over.signal);
  const contention = await acquired(server, 'contended', halting, [kept]);
  expectContention(contention, { path: kept, holder });
  expectContention(await acquired(server, 'contended', lucky, [given]), { path: given, holder });

  await delay(waitMs / 2);
  await release(server, holder, { paths: [given] });
  await delay(waitMs / 2);

  const report = await acquired(server, 'halted', halting, [kept]);
  const { contention_id, denied_at } = contention;
  expect(report).to.include({ contention_id, denied_at, owner_id: halting, retry_s: 180 });
  expect(Date.parse(report.retried_at) - Date.parse(denied_at)).to.be.within(180_000, 200_000);
  expect(report.blockers[0]).to.include({ path: kept, owner_id: holder });
  expect(report.blockers[0].age_ms).to.be.at.least(180_000);
  const [lease] = await acquired(server, 'granted', lucky, [given]);
  expectFileLease(lease, { path: given, owner_id: lucky, lease_state: 'HELD' });

  const [row] = await blockersOf(server, halting);
  expect(row).to.include({ state: 'HALTED', contention_id });
  const { body } = await instruct(server, contention_id, { instruction: 'FORCE_RELEASE' });
  expect(body.outcome).to.equal('granted');
  over.abort();
  expect(await beats, 'the holder was heard').to.be.at.least(6);
}

describe('the runtime sequence of the file contract, in real time', () => {
  const all: TestEngine[] = [];
  const servers: TestServer[] = [];
  const played = new Map<TestEngine, Promise<void>>();
  before(async () => {
    for (const engine of all) {
      const server = await startTestServer(engine);
      servers.push(server);
      const playing = play(server);
      // Each failure is reported by its own test, which may run after this one.
      playing.catch(() => {});
      played.set(engine, playing);
    }
  });
  after(async () => {
    for (const server of servers) await server.stop();
  });

  onEveryEngine((engine) => {
    all.push(engine);
    it('decides the retry after 180 s of silence: halted while held, granted if released (B1)', async function () {
      this.timeout(waitMs + 60_000);
      await played.get(engine);
    });
  });
});
