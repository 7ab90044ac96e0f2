/** Sub-agents borrow what their parent holds. The file returns to the parent unless it was committed. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  acquired,
  haltedPath,
  instruct,
  leasesOf,
  newOwner,
  newPath,
  pass,
  release,
  say,
} from '../../support/files-api.ts';
import { expectError, post } from '../../support/jobs-api.ts';
import { eventually, type TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the file contract: sub-agents', () => {
    let server: TestServer;
    holdSharedServer(engine, {}, (shared) => {
      server = shared;
    });

    const of = (parent: string) => ({ owner: { parent_owner_id: parent } });
    const holderOf = async (path: string) => {
      const rows = await server.database.query<{ owner_id: string }>(
        'select owner_id from file_leases where path = $1 and state = 0',
        [path],
      );
      return rows[0]?.owner_id;
    };
    /** A parent that holds a path, and its sub-agent that has borrowed it. */
    async function borrowed() {
      const [parent, child, path] = [newOwner(), newOwner(), newPath()];
      const [own] = await acquired(server, 'granted', parent, [path]);
      const [lent] = await acquired(server, 'granted', child, [path], of(parent));
      return { parent, child, path, own, lent };
    }

    it('passes the lease to the sub-agent with a new fence, and an event for each side (B5)', async () => {
      const { parent, child, path, own, lent } = await borrowed();
      expect(lent).to.include({ path, owner_id: child, lease_state: 'HELD' });
      expect(lent.fence).to.be.above(own.fence);
      expect(lent.owner.parent_owner_id).to.equal(parent);
      expect(await leasesOf(server, parent)).to.deep.equal([]);
      const [again] = await acquired(server, 'granted', child, [path]);
      expect(again.fence, 'its record names the parent').to.equal(lent.fence);
      const events = await server.database.query<object>(
        `select type, owner_id, fence::int, data ->> 'lent_to' as to, data ->> 'lent_by' as by
        from file_events where path = $1 order by event_id`,
        [path],
      );
      expect(events).to.deep.equal([
        { type: 0, owner_id: parent, fence: own.fence, to: null, by: null },
        { type: 7, owner_id: parent, fence: own.fence, to: child, by: null },
        { type: 0, owner_id: child, fence: lent.fence, to: null, by: parent },
      ]);
    });

    it('denies the file to siblings and the parent while the sub-agent holds it (B5)', async () => {
      const { parent, child, path } = await borrowed();
      const [sibling, other] = [newOwner(), newOwner()];
      for (const [owner, more] of [
        [sibling, of(parent)],
        [parent, {}],
        [other, {}],
      ] as const) {
        const contention = await acquired(server, 'contended', owner, [path], more);
        expect(contention.blockers[0].owner_id).to.equal(child);
      }
    });

    it('returns the file to the parent when the sub-agent releases it without a commit (B5)', async () => {
      const ways: Record<string, (child: string, path: string) => Promise<unknown>> = {
        'releases it as FAILED': (child, path) => release(server, child, { paths: [path], reason: 'FAILED' }),
        'releases everything as ENDED': (child) =>
          release(server, child, { repository: '*', reason: 'ENDED' }),
        ends: (child) => say(server, child, 'end'),
      };
      for (const [way, giveUp] of Object.entries(ways)) {
        const { parent, child, path, lent } = await borrowed();
        await giveUp(child, path);
        const [back] = await leasesOf(server, parent);
        expect(back, way).to.include({ path, lease_state: 'HELD' });
        expect(back.fence, way).to.be.above(lent.fence);
        expect(await leasesOf(server, child), way).to.deep.equal([]);
        await acquired(server, 'contended', newOwner(), [path]);
        await acquired(server, 'granted', parent, [path]);
        const [event] = await server.database.query<object>(
          "select owner_id, data ->> 'returned_by' as by from file_events where path = $1 and type = 0 and data ? 'returned_by'",
          [path],
        );
        expect(event, way).to.deep.equal({ owner_id: parent, by: child });
      }
    });

    it('answers a release that returns a file to the parent with the released lease (B5)', async () => {
      const { child, path, lent } = await borrowed();
      const { body } = await release(server, child, { fences: { [path]: lent.fence }, reason: 'FAILED' });
      expect(body.not_released).to.deep.equal([]);
      expect(body.released).to.have.length(1);
      expect(body.released[0]).to.include({
        path,
        owner_id: child,
        lease_state: 'RELEASED',
        fence: lent.fence,
      });
    });

    it('frees the file when the sub-agent commits it (B5)', async () => {
      const { parent, child, path } = await borrowed();
      await release(server, child, { paths: [path], reason: 'COMMITTED' });
      expect(await leasesOf(server, parent)).to.deep.equal([]);
      await acquired(server, 'granted', newOwner(), [path]);
    });

    it('returns the file to a live parent when the sub-agent dies or stays idle (B5)', async () => {
      for (const way of ['dies', 'idles']) {
        const { parent, child, path } = await borrowed();
        if (way === 'idles') await say(server, child, 'stop');
        await pass(server, 45_000, [parent]);
        await pass(server, 20_000, [parent]);
        await eventually(`the file has returned: it ${way}`, async () =>
          (await holderOf(path)) === parent ? true : undefined,
        );
        await acquired(server, 'contended', newOwner(), [path]);
      }
    });

    it('frees the file if the parent is dead, has ended, or has begun a new life (B5)', async () => {
      const dead = await borrowed();
      await pass(server, 45_000, [dead.child]);
      await pass(server, 20_000, [dead.child]);
      await say(server, dead.child, 'end');
      expect(await holderOf(dead.path)).to.equal(undefined);
      for (const isBack of [false, true]) {
        const { parent, child, path } = await borrowed();
        await say(server, parent, 'end');
        expect(await holderOf(path), 'the sub-agent goes on').to.equal(child);
        await pass(server, 1_000, [child]);
        if (isBack) await acquired(server, 'granted', parent, [newPath()]);
        await say(server, child, 'end');
        expect(await holderOf(path)).to.equal(undefined);
      }
    });

    it('grants a waiting parent the returned file, and keeps it 30 s for a stopped parent (B5)', async () => {
      const { parent, child, path } = await borrowed();
      await acquired(server, 'contended', parent, [path]);
      await say(server, parent, 'stop');
      await pass(server, 31_000, [parent, child]);
      await say(server, child, 'end');
      await acquired(server, 'contended', newOwner(), [path]);
      await pass(server, 29_000, [parent]);
      expect(await holderOf(path)).to.equal(parent);
      await acquired(server, 'granted', parent, [path]);
      await say(server, parent, 'stop');
      await pass(server, 31_000, [parent]);
      await eventually('the parent has given it up', async () =>
        (await holderOf(path)) === undefined ? true : undefined,
      );
    });

    it('frees the file if the parent has halted for it, and keeps the halt (B5)', async () => {
      const { parent, child, path } = await borrowed();
      await acquired(server, 'contended', parent, [path]);
      await pass(server, 181_000, [parent, child]);
      await acquired(server, 'halted', parent, [path]);
      await say(server, child, 'end');
      expect(await holderOf(path)).to.equal(undefined);
      await acquired(server, 'halted', parent, [path]);
    });

    it('lends files to sub-agents of sub-agents, and returns them the same way (B5)', async () => {
      const { parent, child, path } = await borrowed();
      const grandchild = newOwner();
      await acquired(server, 'granted', grandchild, [path], of(child));
      await say(server, grandchild, 'end');
      expect(await holderOf(path)).to.equal(child);
      await acquired(server, 'granted', grandchild, [path], of(child));
      await say(server, child, 'end');
      await say(server, grandchild, 'end');
      expect(await holderOf(path), 'the child is not there any more').to.equal(parent);
    });

    it('grants several files at once: free ones and those of the parent (B5)', async () => {
      const [parent, child, own, free] = [newOwner(), newOwner(), newPath(), newPath()];
      await acquired(server, 'granted', parent, [own]);
      expect(await acquired(server, 'granted', child, [own, free], of(parent))).to.have.length(2);
      await say(server, child, 'end');
      expect([await holderOf(own), await holderOf(free)]).to.deep.equal([parent, undefined]);
    });

    it('takes a borrowed file by FORCE_RELEASE, and returns nothing to the parent (B5)', async () => {
      const { parent, child, path } = await borrowed();
      const other = newOwner();
      await acquired(server, 'contended', other, [path]);
      await pass(server, 181_000, [parent, child, other]);
      const report = await acquired(server, 'halted', other, [path]);
      await instruct(server, report.contention_id, { instruction: 'FORCE_RELEASE' });
      await say(server, child, 'end');
      expect(await holderOf(path)).to.equal(other);
      await say(server, other, 'end');
      expect(await holderOf(path)).to.equal(undefined);
    });

    it('decides an instructed RETRY of a sub-agent like its request: the parent lends (B5)', async () => {
      const { holder, waiter, path, report } = await haltedPath(server);
      await acquired(server, 'halted', waiter, [path], of(holder));
      const { body } = await instruct(server, report.contention_id, { instruction: 'RETRY' });
      expect(body.outcome).to.equal('granted');
      expect(await holderOf(path)).to.equal(waiter);
      await say(server, waiter, 'end');
      expect(await holderOf(path)).to.equal(holder);
    });

    it('refuses an owner that is its own parent, and names the field (B5)', async () => {
      const owner = newOwner();
      const body = { owner_id: owner, repository: 'r', paths: ['p'], ...of(owner) };
      const answer = await post(server, '/api/files/acquire', body);
      expectError(answer, { status: 400, code: 'invalid_request', field: 'owner.parent_owner_id' });
    });
  });
});
