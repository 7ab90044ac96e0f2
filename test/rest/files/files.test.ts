/** The test plan of the file contract and its definition of done, by name. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  acquire,
  acquired,
  beat,
  blockersOf,
  contendedPath,
  expectContention,
  expectFileLease,
  haltedPath,
  leasesOf,
  newOwner,
  newPath,
  pass,
  release,
  say,
} from '../../support/files-api.ts';
import { expectError } from '../../support/jobs-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the file contract', () => {
    let server: TestServer;
    holdSharedServer(engine, {}, (shared) => {
      server = shared;
    });

    describe('lease acquire, deny, release', () => {
      it('grants a free file to the first owner that asks, with the recorded fields', async () => {
        const [owner, path] = [newOwner(), newPath()];
        const [lease, ...more] = await acquired(server, 'granted', owner, [path], {
          owner: { agent: 'coder', host: 'here', pid: 7, branch: 'main' },
        });
        expect(more).to.deep.equal([]);
        expectFileLease(lease, { path, owner_id: owner, lease_state: 'HELD' });
        expect(lease.owner).to.deep.equal({
          agent: 'coder',
          host: 'here',
          pid: 7,
          branch: 'main',
          parent_owner_id: null,
        });
        expect(Date.parse(lease.expires_at) - Date.parse(lease.last_heartbeat_at)).to.equal(60_000);
      });

      it('grants an owner the files that it already holds at once and unchanged', async () => {
        const [owner, path, other] = [newOwner(), newPath(), newPath()];
        const [first] = await acquired(server, 'granted', owner, [path]);
        const [again, second] = await acquired(server, 'granted', owner, [path, other]);
        expect(again).to.include({ fence: first.fence, acquired_at: first.acquired_at });
        expect(second.fence).to.be.above(first.fence);
      });

      it('denies a held file with a contention that names the holder and the retry time', async () => {
        const { holder, path, contention } = await contendedPath(server);
        expectContention(contention, { path, holder });
        expect(contention.blockers[0].owner).to.include({ agent: 'coder', pid: 42 });
      });

      it('grants all of several files or none', async () => {
        const [holder, waiter, taken, free] = [newOwner(), newOwner(), newPath(), newPath()];
        await acquired(server, 'granted', holder, [taken]);
        const contention = await acquired(server, 'contended', waiter, [free, taken]);
        expect(contention.paths).to.deep.equal([taken]);
        expect(await leasesOf(server, waiter)).to.deep.equal([]);
        await acquired(server, 'granted', waiter, [free]);
      });

      it('treats spellings of one path as one file, and paths that differ in case as two', async () => {
        const [owner, other] = [newOwner(), newOwner()];
        const leases = await acquired(server, 'granted', owner, [
          'same/./file.ts',
          'same//file.ts',
          'same/x/../file.ts',
        ]);
        expect(leases).to.have.length(1);
        expect(leases[0].path).to.equal('same/file.ts');
        await acquired(server, 'contended', other, ['same/file.ts']);
        await acquired(server, 'granted', other, ['same/File.ts']);
        await acquired(server, 'granted', newOwner(), ['same/file.ts'], { repository: 'another' });
      });

      it('releases only the named files of an owner', async () => {
        const [owner, kept, given, strange] = [newOwner(), newPath(), newPath(), newPath()];
        await acquired(server, 'granted', owner, [kept, given]);
        const { body } = await release(server, owner, { paths: [given, strange] });
        expect(body.released).to.have.length(1);
        expectFileLease(body.released[0], { path: given, owner_id: owner, lease_state: 'RELEASED' });
        expect(body.not_released).to.have.length(1);
        const detail = 'no owner holds it';
        expect(body.not_released[0]).to.include({ path: strange, code: 'not_held', detail });
        expect((await leasesOf(server, owner)).map(({ path }) => path)).to.deep.equal([kept]);
        await acquired(server, 'granted', newOwner(), [given]);
      });

      it("releases a repository's files on FAILED and ENDED, and every repository's for * (S7)", async () => {
        for (const reason of ['FAILED', 'ENDED']) {
          const [owner, path, other] = [newOwner(), newPath(), newPath()];
          await acquired(server, 'granted', owner, [path, other]);
          await acquired(server, 'granted', owner, [path], { repository: 'elsewhere' });
          expect((await release(server, owner, { reason })).body.released).to.have.length(2);
          const [left] = await leasesOf(server, owner);
          expect(left).to.include({ repository: 'elsewhere', path });
          const unnamed = await release(server, owner, { reason, repository: undefined });
          expectError(unnamed, { status: 400, code: 'invalid_request', field: 'repository' });
          const all = await release(server, owner, { reason, repository: '*' });
          expect(all.body.released).to.have.length(1);
        }
      });

      it("reports a stale fence for its path, releases other files, and keeps the successor's lease", async () => {
        const [owner, path, other] = [newOwner(), newPath(), newPath()];
        const [old] = await acquired(server, 'granted', owner, [path]);
        await release(server, owner, { paths: [path] });
        const [now] = await acquired(server, 'granted', owner, [path]);
        const [fresh] = await acquired(server, 'granted', owner, [other]);
        expect(now.fence).to.be.above(old.fence);
        const { body } = await release(server, owner, {
          fences: { [path]: old.fence, [other]: fresh.fence },
        });
        expect(body.not_released).to.have.length(1);
        expect(body.not_released[0]).to.include({ path, code: 'stale_fence' });
        expect(body.released.map((lease: { path: string }) => lease.path)).to.deep.equal([other]);
        const { body: right } = await release(server, owner, {
          paths: [path],
          fences: { [path]: now.fence },
        });
        expect(right.released).to.have.length(1);
      });

      it('releases all files at once when their owner ends', async () => {
        const [owner, path] = [newOwner(), newPath()];
        await acquired(server, 'granted', owner, [path]);
        const { status, body } = await say(server, owner, 'end');
        expect(status).to.equal(200);
        expect(body.owner).to.include({ owner_id: owner, state: 'ENDED' });
        expect(body.released).to.have.length(1);
        await acquired(server, 'granted', newOwner(), [path]);
        const { status: gone, body: lost } = await beat(server, owner);
        expect(gone).to.equal(409);
        expect(lost.code).to.equal('owner_not_alive');
        expect(lost.detail).to.match(/ended at 20/);
        expect((await say(server, owner, 'end')).status).to.equal(200);
      });
    });

    describe('liveness reclaim invalidates the lease of a dead owner', () => {
      it('ends the lease of a dead owner when another owner asks for the file', async () => {
        const { holder, path } = await contendedPath(server);
        await pass(server, 61_000, []);
        const [lease] = await acquired(server, 'granted', newOwner(), [path]);
        expect(lease.lease_state).to.equal('HELD');
        const { status, body } = await beat(server, holder);
        expect(status).to.equal(409);
        expect(body.code).to.equal('owner_not_alive');
        expect(body.detail).to.match(/died at 20.* not heard/);
      });

      it('ends the lease of a dead owner within a second, with both timestamps in the event', async () => {
        const [owner, path] = [newOwner(), newPath()];
        await acquired(server, 'granted', owner, [path]);
        await pass(server, 59_700, []);
        interface Row {
          heard: string;
          reclaimed: string;
          late: number;
        }
        const event = await eventually('the file is reclaimed', async () => {
          const [row] = await server.database.query<Row>(
            `select data ->> 'last_heartbeat_at' as heard, data ->> 'reclaimed_at' as reclaimed,
              extract(epoch from event.at - owner.expires_at)::float8 * 1000 as late
            from file_events event join file_owners owner on owner.owner_id = event.owner_id
            where event.owner_id = $1 and event.path = $2 and event.type = 8`,
            [owner, path],
          );
          return row;
        });
        expect(event.late, 'ms after the TTL').to.be.within(0, 1_000);
        expect(Date.parse(event.reclaimed) - Date.parse(event.heard)).to.be.within(60_000, 61_000);
        expect(await leasesOf(server, owner)).to.deep.equal([]);
      });

      it('keeps the lease of an owner that sends heartbeats, however long it works', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        await pass(server, 600_000, [holder]);
        expect(await leasesOf(server, holder)).to.have.length(1);
        // The contention does not depend on the waiter, which has died in the meantime.
        await acquired(server, 'halted', waiter, [path]);
      });

      it('starts a new life without the old files for an owner that returns after its death', async () => {
        const [owner, path] = [newOwner(), newPath()];
        const [old] = await acquired(server, 'granted', owner, [path]);
        await pass(server, 61_000, []);
        const [lease] = await acquired(server, 'granted', owner, [path]);
        expect(lease.fence).to.be.above(old.fence);
        expect((await beat(server, owner)).status).to.equal(200);
      });
    });

    describe('stop-idle release after 30 s', () => {
      it('releases all files of an owner stopped for 30 s, although it sends heartbeats', async () => {
        const [owner, path] = [newOwner(), newPath()];
        await acquired(server, 'granted', owner, [path]);
        const { body } = await say(server, owner, 'stop');
        expect(Date.parse(body.owner.idle_at) - Date.parse(body.owner.stopped_at)).to.equal(30_000);
        await pass(server, 29_000, [owner]);
        expect(await leasesOf(server, owner)).to.have.length(1);
        await pass(server, 1_100, [owner]);
        await acquired(server, 'granted', newOwner(), [path]);
        expect(await leasesOf(server, owner)).to.deep.equal([]);
        expect((await beat(server, owner)).status, 'it lives').to.equal(200);
      });

      it('releases the files of a stopped owner without a request', async () => {
        const [owner, path] = [newOwner(), newPath()];
        await acquired(server, 'granted', owner, [path]);
        await say(server, owner, 'stop');
        await pass(server, 30_100, [owner]);
        await eventually('it has given up everything', async () =>
          (await leasesOf(server, owner)).length === 0 ? true : undefined,
        );
      });

      it('keeps the files of an owner that is active again; a repeated stop postpones nothing', async () => {
        const [owner, path] = [newOwner(), newPath()];
        await acquired(server, 'granted', owner, [path]);
        const first = (await say(server, owner, 'stop')).body.owner;
        await pass(server, 10_000, [owner]);
        const second = (await say(server, owner, 'stop')).body.owner;
        expect(Date.parse(first.idle_at) - Date.parse(second.idle_at)).to.equal(10_000);
        const { body } = await say(server, owner, 'activity');
        expect(body.owner).to.include({ stopped_at: null, idle_at: null, state: 'ALIVE' });
        await pass(server, 45_000, [owner]);
        expect(await leasesOf(server, owner)).to.have.length(1);
        await say(server, owner, 'stop');
        await acquired(server, 'granted', owner, [path]);
        await pass(server, 45_000, [owner]);
        expect(await leasesOf(server, owner), 'acquiring is activity').to.have.length(1);
      });
    });

    describe('heartbeat and retry after 180 s', () => {
      it('gives every request before the retry the same contention, even when the file is free', async () => {
        const { holder, waiter, path, contention } = await contendedPath(server);
        const other = newPath();
        await pass(server, 90_000, [holder, waiter]);
        const again = await acquired(server, 'contended', waiter, [other, path]);
        expect(again.contention_id).to.equal(contention.contention_id);
        expect(again.retry_after_ms).to.be.within(80_000, 90_000);
        await release(server, holder);
        const free = await acquired(server, 'contended', waiter, [path]);
        expect(free).to.include({
          contention_id: again.contention_id,
          retry_at: again.retry_at,
          denied_at: again.denied_at,
        });
        await acquired(server, 'granted', waiter, [other]);
        await acquired(server, 'granted', newOwner(), [path]);
      });

      it('decides the retry of a waiter without heartbeats: halted while the file is held (B1)', async () => {
        const { holder, waiter, path, contention } = await contendedPath(server);
        await pass(server, 179_000, [holder]);
        const early = await acquired(server, 'contended', waiter, [path]);
        expect(early).to.include({ contention_id: contention.contention_id });
        await pass(server, 60_000, [holder]);
        const report = await acquired(server, 'halted', waiter, [path]);
        expect(report).to.include({ contention_id: contention.contention_id, owner_id: waiter });
      });

      it('decides the retry of a waiter without heartbeats: granted if the file is free (B1)', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        await pass(server, 181_000, [holder]);
        await release(server, holder);
        await acquired(server, 'granted', waiter, [path]);
        expect(await blockersOf(server, waiter)).to.deep.equal([]);
      });

      it('gives a waiter that ends and returns the same contention (B6)', async () => {
        const { holder, waiter, path, contention } = await contendedPath(server);
        await release(server, holder);
        await say(server, waiter, 'end');
        expect(await blockersOf(server, waiter)).to.have.length(1);
        const { contention_id, retry_at } = await acquired(server, 'contended', waiter, [path]);
        expect({ contention_id, retry_at }).to.deep.equal({
          contention_id: contention.contention_id,
          retry_at: contention.retry_at,
        });
      });

      it('lets a contention lapse ten minutes after an unused retry of a dead waiter too (B1)', async () => {
        const { holder, waiter, path, contention } = await contendedPath(server);
        await pass(server, 779_000, [holder]);
        expect(await blockersOf(server, waiter)).to.have.length(1);
        await pass(server, 2_000, [holder]);
        await eventually('the contention has lapsed', async () =>
          (await blockersOf(server, waiter)).length === 0 ? true : undefined,
        );
        const next = await acquired(server, 'contended', waiter, [path]);
        expect(next.contention_id).not.to.equal(contention.contention_id);
      });

      it('grants the one retry if the file is free then', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        await release(server, holder);
        await pass(server, 170_000, [waiter]);
        await acquired(server, 'contended', waiter, [path]);
        await pass(server, 10_500, [waiter]);
        await acquired(server, 'granted', waiter, [path]);
        expect(await blockersOf(server, waiter)).to.deep.equal([]);
      });

      it('lets a contention lapse ten minutes after an unused retry, and starts a new one then', async () => {
        const { holder, waiter, path, contention } = await contendedPath(server);
        await pass(server, 781_000, [holder, waiter]);
        const next = await acquired(server, 'contended', waiter, [path]);
        expect(next.contention_id).not.to.equal(contention.contention_id);
        expect(next.retry_after_ms).to.equal(180_000);
      });

      it('records an event when the retry is due', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        await pass(server, 180_500, [holder, waiter]);
        await eventually('the retry was told to be due', async () => {
          const found = await server.database.query(
            'select from file_events where owner_id = $1 and path = $2 and type = 2',
            [waiter, path],
          );
          return found.length === 1 ? true : undefined;
        });
      });
    });

    describe('two agents contend for one file', () => {
      it('grants a file to exactly one of two racing agents', async () => {
        const [path, agents] = [newPath(), Array.from({ length: 20 }, newOwner)];
        const outcomes = await Promise.all(
          agents.map(async (agent) => {
            const answer = await acquire(server, agent, [path]);
            return answer.body.outcome;
          }),
        );
        expect(outcomes.filter((outcome) => outcome === 'granted')).to.have.length(1);
        expect(outcomes.filter((outcome) => outcome === 'contended')).to.have.length(19);
      });
    });

    describe('blocked after the retry: halt and blocker contract', () => {
      it('halts with the full report, and repeats it until an operator gives an instruction', async () => {
        const { holder, waiter, path, report } = await haltedPath(server);
        expect(report).to.include({ owner_id: waiter, retry_s: 180, blocker_changed: false });
        expect(report.paths).to.deep.equal([path]);
        expect(report.blockers[0]).to.include({ path, owner_id: holder });
        expect(report.blockers[0].age_ms).to.be.at.least(180_000);
        expect(Date.parse(report.halted_at)).to.be.at.least(Date.parse(report.denied_at) + 180_000);
        await release(server, holder);
        const again = await acquired(server, 'halted', waiter, [path]);
        expect(again).to.include({ contention_id: report.contention_id, halted_at: report.halted_at });
        const [row] = await blockersOf(server, waiter);
        expect(row).to.include({ state: 'HALTED', contention_id: report.contention_id });
      });

      it('reports the new holder if another owner blocks the file by the time of the retry', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        const next = newOwner();
        await release(server, holder);
        await acquired(server, 'granted', next, [path]);
        await pass(server, 181_000, [waiter, next]);
        const report = await acquired(server, 'halted', waiter, [path]);
        expect(report.blocker_changed).to.equal(true);
        expect(report.blockers[0].owner_id).to.equal(next);
      });

      it('reports that the same owner released the file and acquired it again (D16)', async () => {
        const { holder, waiter, path } = await contendedPath(server);
        await release(server, holder);
        await pass(server, 10_000, [holder]);
        await acquired(server, 'granted', holder, [path]);
        await pass(server, 171_000, [holder]);
        const report = await acquired(server, 'halted', waiter, [path]);
        expect(report.blocker_changed).to.equal(true);
        expect(report.blockers[0].owner_id).to.equal(holder);
      });

      it('lists waiting and halted contentions', async () => {
        const { waiter, path, contention } = await contendedPath(server);
        const [row] = await blockersOf(server, waiter);
        expect(row).to.include({ state: 'CONTENDED', contention_id: contention.contention_id });
        expect(row.paths).to.deep.equal([path]);
      });

      it('does not halt other paths of the owner', async () => {
        const { waiter } = await haltedPath(server);
        await acquired(server, 'granted', waiter, [newPath()]);
      });
    });
  });
});
