import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
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
} from '../../support/files-api.ts';
import { expectError } from '../../support/jobs-api.ts';
import type { TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the file contract: instructions of operators', () => {
    let server: TestServer;
    holdSharedServer(engine, {}, (shared) => {
      server = shared;
    });

    it('decides RETRY at once: halted again while the file is held, granted when it is free', async () => {
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

    it('takes the file of a dead holder on RETRY', async () => {
      const { waiter, path, report } = await haltedPath(server);
      await pass(server, 61_000, [waiter]);
      const { body } = await instruct(server, report.contention_id, { instruction: 'RETRY' });
      expect(body.outcome).to.equal('granted');
      expect(body.leases[0].path).to.equal(path);
    });

    it('closes the contention on ABANDON, and treats the next request as a first one', async () => {
      const { waiter, path, report } = await haltedPath(server);
      const { body } = await instruct(server, report.contention_id, { instruction: 'ABANDON' });
      expect(body).to.deep.equal({ outcome: 'abandoned', contention_id: report.contention_id });
      const next = await acquired(server, 'contended', waiter, [path]);
      expect(next.contention_id).not.to.equal(report.contention_id);
    });

    it('revokes the lease and its fence on FORCE_RELEASE, notifies its holder, and grants', async () => {
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

    it('refuses an instruction for an unknown, waiting or closed contention', async () => {
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

    /** A halt whose owner has ended or died, while the holder stays alive. */
    const leftBehind = async (over: 'end' | 'silence') => {
      const halt = await haltedPath(server);
      if (over === 'end') await say(server, halt.waiter, 'end');
      else await pass(server, 61_000, [halt.holder]);
      return halt;
    };

    for (const over of ['end', 'silence'] as const) {
      it(`lists a halt after the owner's ${over} until an operator instructs it (B2, B6)`, async () => {
        const { holder, waiter, path, report } = await leftBehind(over);
        await pass(server, 900_000, [holder]);
        const [row] = await blockersOf(server, waiter);
        expect(row).to.include({ state: 'HALTED', contention_id: report.contention_id });
        expect(row.kept_instruction).to.equal(null);
        const again = await acquired(server, 'halted', waiter, [path]);
        expect(again.contention_id).to.equal(report.contention_id);
      });

      it(`keeps RETRY after the owner's ${over}, and decides it at the owner's next request (B2)`, async () => {
        const { holder, waiter, path, report } = await leftBehind(over);
        const order = { instruction: 'RETRY', requested_by: 'ops', reason: 'try it' };
        const answer = await instruct(server, report.contention_id, order);
        expect(answer.status, answer.text).to.equal(200);
        const { contention_id } = report;
        expect(answer.body).to.deep.equal({ outcome: 'kept', contention_id, instruction: 'RETRY' });
        const [row] = await blockersOf(server, waiter);
        expect(row.kept_instruction).to.include({
          instruction: 'RETRY',
          instructed_by: 'ops',
          reason: 'try it',
        });
        // The instruction was applied once: the file is still held, so it is halted again, without an
        // instruction.
        const still = await acquired(server, 'halted', waiter, [path]);
        expect(still).to.include({ contention_id, kept_instruction: null });
        expect(Date.parse(still.halted_at)).to.be.above(Date.parse(report.halted_at));
        await say(server, waiter, 'end');
        await instruct(server, contention_id, { instruction: 'RETRY' });
        await release(server, holder);
        await acquired(server, 'granted', waiter, [path]);
        expect(await blockersOf(server, waiter)).to.deep.equal([]);
      });

      it(`keeps FORCE_RELEASE after the owner's ${over}: its next request takes the file (B2)`, async () => {
        const { holder, waiter, path, report } = await leftBehind(over);
        const order = { instruction: 'FORCE_RELEASE', requested_by: 'ops' };
        const { body } = await instruct(server, report.contention_id, order);
        expect(body.outcome).to.equal('kept');
        expect(await leasesOf(server, holder), 'nothing is taken before').to.have.length(1);
        const [lease] = await acquired(server, 'granted', waiter, [path]);
        expect(lease).to.include({ path, owner_id: waiter });
        const heard = await beat(server, holder);
        expect(heard.body.lost_files[0]).to.include({ path });
        expect(heard.body.lost_files[0].reason).to.include('ops');
        expect(await blockersOf(server, waiter)).to.deep.equal([]);
      });

      it(`applies ABANDON at once after the owner's ${over} (B2)`, async () => {
        const { waiter, path, report } = await leftBehind(over);
        const { body } = await instruct(server, report.contention_id, { instruction: 'ABANDON' });
        expect(body.outcome).to.equal('abandoned');
        expect(await blockersOf(server, waiter)).to.deep.equal([]);
        const next = await acquired(server, 'contended', waiter, [path]);
        expect(next.contention_id).not.to.equal(report.contention_id);
      });
    }

    it('replaces a stored instruction by a later one (B2)', async () => {
      const { holder, waiter, path, report } = await leftBehind('end');
      await instruct(server, report.contention_id, { instruction: 'FORCE_RELEASE' });
      await instruct(server, report.contention_id, { instruction: 'RETRY' });
      await acquired(server, 'halted', waiter, [path]);
      expect(await leasesOf(server, holder)).to.have.length(1);
      await say(server, waiter, 'end');
      await instruct(server, report.contention_id, { instruction: 'RETRY' });
      const { body } = await instruct(server, report.contention_id, { instruction: 'ABANDON' });
      expect(body.outcome).to.equal('abandoned');
      await acquired(server, 'contended', waiter, [path]);
    });

    it('names the invalid field of an instruction that it refuses', async () => {
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
