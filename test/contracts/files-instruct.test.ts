import { expect } from 'chai';
import { onEveryEngine } from '../support/engines.ts';
import type { TestServer } from '../support/server.ts';
import { shareServer } from '../support/shared-server.ts';
import {
  acquired,
  beat,
  blockersOf,
  contendedPath,
  haltedPath,
  instruct,
  leasesOf,
  newOwner,
  newPath,
  pass,
  release,
  say,
} from './files.ts';
import { expectError } from './queue.ts';

onEveryEngine((engine) => {
  describe('the file contract: what an operator instructs', () => {
    const share = shareServer(engine, {});
    let server: TestServer;
    before(async () => {
      server = await share.start();
    });
    afterEach(() => expect(server.complaints.splice(0)).to.deep.equal([]));
    after(() => share.leave());

    it('RETRY is judged at once: halted again while the file is held, granted when it is free', async () => {
      const { holder, waiter, path, report } = await haltedPath(server);
      const again = await instruct(server, report.contention_id, { instruction: 'RETRY' });
      expect(again.status, again.text).to.equal(200);
      expect(again.body.outcome).to.equal('halted');
      const { halted_at, retried_at, contention_id } = again.body.blocker_report;
      expect(contention_id).to.equal(report.contention_id);
      expect(Date.parse(halted_at)).to.be.at.least(Date.parse(report.halted_at));
      expect(retried_at).to.equal(halted_at);
      await release(server, holder);
      const { body } = await instruct(server, report.contention_id, { instruction: 'RETRY' });
      expect(body.outcome).to.equal('granted');
      expect(body.leases[0]).to.include({ path, owner_id: waiter, lease_state: 'HELD' });
      const [own] = await acquired(server, 'granted', waiter, [path]);
      expect(own.fence).to.equal(body.leases[0].fence);
      expect(await blockersOf(server, waiter)).to.deep.equal([]);
    });

    it('RETRY takes the file of a holder that has died meanwhile', async () => {
      const { waiter, path, report } = await haltedPath(server);
      await pass(server, 61_000, [waiter]);
      const { body } = await instruct(server, report.contention_id, { instruction: 'RETRY' });
      expect(body.outcome).to.equal('granted');
      expect(body.leases[0].path).to.equal(path);
    });

    it('ABANDON closes the contention, and the next request is a first one', async () => {
      const { waiter, path, report } = await haltedPath(server);
      const { body } = await instruct(server, report.contention_id, { instruction: 'ABANDON' });
      expect(body).to.deep.equal({ outcome: 'abandoned', contention_id: report.contention_id });
      const next = await acquired(server, 'contended', waiter, [path]);
      expect(next.contention_id).not.to.equal(report.contention_id);
    });

    it('FORCE_RELEASE revokes the lease and its fence, tells its holder, and grants', async () => {
      const { holder, waiter, path, report } = await haltedPath(server);
      const other = newPath();
      const [revoked] = await leasesOf(server, holder);
      await acquired(server, 'granted', holder, [other]);
      const { body } = await instruct(server, report.contention_id, {
        instruction: 'FORCE_RELEASE',
        requested_by: 'ops',
        reason: 'it hangs',
      });
      expect(body.outcome).to.equal('granted');
      expect(body.leases[0]).to.include({ path, owner_id: waiter });
      expect(body.leases[0].fence).to.be.above(revoked.fence);
      for (let time = 0; time < 2; time++) {
        const heard = await beat(server, holder);
        expect(heard.status, heard.text).to.equal(200);
        expect(heard.body.lost_files).to.have.length(1);
        expect(heard.body.lost_files[0]).to.include({ path, fence: revoked.fence });
        expect(heard.body.lost_files[0].reason).to.include('ops');
      }
      const { body: late } = await release(server, holder, { fences: { [path]: revoked.fence } });
      expect(late.not_released[0]).to.include({ path, code: 'not_held' });
      expect((await beat(server, holder)).body.lost_files, 'it knows').to.deep.equal([]);
      expect((await leasesOf(server, holder)).map((lease) => lease.path)).to.deep.equal([other]);
      expect((await leasesOf(server, waiter)).map((lease) => lease.path)).to.deep.equal([path]);
    });

    it('is refused for a contention that nobody knows, that waits, or that is over', async () => {
      for (const id of ['00000000-0000-4000-8000-000000000000', 'nonsense']) {
        const answer = await instruct(server, id, { instruction: 'RETRY' });
        expectError(answer, { status: 404, code: 'contention_not_found' });
      }
      const { contention } = await contendedPath(server);
      const early = await instruct(server, contention.contention_id, { instruction: 'FORCE_RELEASE' });
      expectError(early, { status: 409, code: 'illegal_transition' });
      expect(early.body.detail).to.include(contention.retry_at);
      const { report } = await haltedPath(server);
      await instruct(server, report.contention_id, { instruction: 'ABANDON' });
      for (const instruction of ['ABANDON', 'RETRY', 'FORCE_RELEASE']) {
        const twice = await instruct(server, report.contention_id, { instruction });
        expectError(twice, { status: 409, code: 'illegal_transition' });
        expect(twice.body.detail).to.include('ABANDONED');
      }
    });

    it('is refused where the owner is not there any more: its contentions have lapsed with it', async () => {
      for (const over of ['end', 'silence']) {
        const { waiter, report } = await haltedPath(server);
        if (over === 'end') await say(server, waiter, 'end');
        else await pass(server, 61_000, []);
        const answer = await instruct(server, report.contention_id, { instruction: 'RETRY' });
        expectError(answer, { status: 409, code: 'illegal_transition' });
        expect(answer.body.detail).to.include('LAPSED');
      }
    });

    it('is refused by name where it is no instruction', async () => {
      const { report } = await haltedPath(server);
      for (const body of [{}, { instruction: 'WAIT' }, { instruction: null }, { instruction: 7 }]) {
        const answer = await instruct(server, report.contention_id, body);
        expectError(answer, { status: 400, code: 'invalid_request', field: 'instruction' });
      }
    });

    it('halts every file of a request whose retry was blocked, and frees them together', async () => {
      const [holder, waiter, ...paths] = [newOwner(), newOwner(), newPath(), newPath(), newPath()];
      const [first = '', second = '', free = ''] = paths;
      await acquired(server, 'granted', holder, [first, second]);
      const contention = await acquired(server, 'contended', waiter, [free, second, first]);
      expect(contention.paths).to.have.members([first, second]);
      await pass(server, 181_000, [holder, waiter]);
      await release(server, holder, { paths: [second] });
      const report = await acquired(server, 'halted', waiter, [free, first, second]);
      expect(report.paths).to.deep.equal([first]);
      const { body } = await instruct(server, report.contention_id, { instruction: 'FORCE_RELEASE' });
      expect(body.leases).to.have.length(1);
      expect(await acquired(server, 'granted', waiter, [free, first, second])).to.have.length(3);
    });
  });
});
