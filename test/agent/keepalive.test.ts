/** How the keep-alive reacts to the server's answers, and to its silence. */
import { expect } from 'chai';
import type { FileLease, Heartbeat } from '../../src/agent/files-client.ts';
import { Keepalive, type KeepaliveOptions } from '../../src/agent/keepalive.ts';
import { ServerError } from '../../src/client/http-client.ts';
import { until } from '../support/process.ts';

const url = 'http://server';
const gone = new ServerError('there is no server');
const dead = new ServerError('owner o died', { code: 'owner_not_alive' });

/** A lease with this TTL after its grant. */
function leaseFor(ms: number, fields: Partial<FileLease> = {}): FileLease {
  const last_heartbeat_at = new Date().toISOString();
  const expires_at = new Date(Date.parse(last_heartbeat_at) + ms).toISOString();
  return { repository: 'r', path: 'a', fence: 7, last_heartbeat_at, expires_at, ...fields } as FileLease;
}

const lost_at = '2026-11-18T12:00:00.000Z';
const lostFile = { repository: 'r', path: 'a', fence: 7, lost_at, reason: 'ann' };
const alive = (ttl_remaining_ms = 60_000, lost_files = [] as Heartbeat['lost_files']): Heartbeat => ({
  ttl_remaining_ms,
  lost_files,
});

/** A keep-alive for one file, with everything that it has done and reported so far. */
function keeperOf(
  answers: (Heartbeat | ServerError)[],
  { goodForMs = 60_000, ...options }: KeepaliveOptions & { goodForMs?: number } = {},
) {
  const told: string[] = [];
  const answer = (kind: string) => {
    told.push(kind);
    const next = kind === 'heartbeat' ? answers.shift() : undefined;
    if (next instanceof ServerError) throw next;
    return next as Heartbeat;
  };
  const api = {
    url,
    activity: async () => void answer('activity'),
    heartbeat: async () => answer('heartbeat'),
  };
  const on = {
    onLost: ({ why, isCertain }: { why: string; isCertain: boolean }) =>
      void told.push(`${isCertain ? 'lost' : 'perhaps lost'}: ${why}`),
    onNotice: (what: string) => void told.push(what),
  };
  const keeper = new Keepalive(api, 'o', on, options);
  keeper.start();
  keeper.hold([leaseFor(goodForMs)], performance.now());
  return { keeper, told, [Symbol.dispose]: () => keeper.stop() };
}

describe('the keep-alive of an owner', () => {
  it('prints nothing while the server answers', async () => {
    using it = keeperOf([alive(), alive()]);
    await it.keeper.heartbeat();
    await it.keeper.heartbeat();
    expect(it.told).to.deep.equal(['heartbeat', 'heartbeat']);
  });

  it('reports a revoked file once, and no other file', async () => {
    const others = [
      { ...lostFile, path: 'b' },
      { ...lostFile, fence: 6 },
    ];
    using it = keeperOf([
      alive(60_000, others),
      alive(60_000, [...others, lostFile]),
      alive(60_000, [lostFile]),
    ]);
    await it.keeper.heartbeat();
    expect(it.told).to.deep.equal(['heartbeat']);
    await it.keeper.heartbeat();
    await it.keeper.heartbeat();
    expect(it.told.slice(1, 3)).to.deep.equal(['heartbeat', `lost: a was taken away at ${lost_at}: ann`]);
    expect(it.told.filter((word) => word.startsWith('lost'))).to.have.length(1);
  });

  it('reports an owner that is not alive any more', async () => {
    using it = keeperOf([dead]);
    await it.keeper.heartbeat();
    expect(it.told).to.deep.equal(['heartbeat', 'lost: owner o died']);
  });

  it('reports the silence of a server once, and its end', async () => {
    using it = keeperOf([gone, gone, alive()]);
    for (let i = 0; i < 3; i++) await it.keeper.heartbeat();
    expect(it.told).to.deep.equal([
      'heartbeat',
      'no heartbeat gets through, trying again: there is no server',
      'heartbeat',
      'heartbeat',
      'the server is there again',
    ]);
  });

  it("gives the files up after the server's silence has outlasted their TTL, and not before", async () => {
    using it = keeperOf([alive(400), gone], { goodForMs: 60_000 });
    const beatAt = performance.now();
    await it.keeper.heartbeat();
    await it.keeper.heartbeat();
    await until('the loss', () => it.told.some((word) => word.startsWith('perhaps lost')));
    // Timers count whole milliseconds.
    expect(performance.now() - beatAt).to.be.greaterThan(398);
    expect(it.told.at(-1)).to.match(
      /^perhaps lost: the server at http:\/\/server has not answered for 4\d\d ms$/,
    );
  });

  it('gives the files up if the server never answered a heartbeat', async () => {
    using it = keeperOf([gone], { goodForMs: 50 });
    await it.keeper.heartbeat();
    await until('the loss', () => it.told.some((word) => word.startsWith('perhaps lost')));
  });

  it('reports the silence early enough to stop the work before the files are lost', async () => {
    using it = keeperOf([gone], { goodForMs: 60_000, leadMs: 59_950 });
    await until('the loss', () => it.told.some((word) => word.startsWith('perhaps lost')));
  });

  it('continues after the loss of an answer in time, and reports the fate of the files', async () => {
    using it = keeperOf([gone, alive(), dead], { goodForMs: 50 });
    await it.keeper.heartbeat();
    await until('the loss', () => it.told.some((word) => word.startsWith('perhaps lost')));
    await it.keeper.heartbeat();
    expect(it.told.slice(-2)).to.deep.equal(['heartbeat', 'the server is there again']);
    await it.keeper.heartbeat();
    expect(it.told.slice(-2)).to.deep.equal(['heartbeat', 'lost: owner o died']);
  });

  it('sends a heartbeat at once after the machine slept and its clock stood still', async () => {
    let sleptMs = 0;
    using it = keeperOf([dead], { wallClock: () => Date.now() + sleptMs });
    sleptMs = 600_000;
    await until('a heartbeat', () => it.told.length > 1);
    expect(it.told).to.deep.equal(['heartbeat', 'lost: owner o died']);
  });

  it('reports activity for an owner that other processes may report as stopped', async () => {
    using it = keeperOf([alive()], { isAtWork: true });
    await it.keeper.heartbeat();
    expect(it.told).to.deep.equal(['activity', 'heartbeat']);
  });
});
