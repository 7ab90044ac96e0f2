/** Callers: how waits and halts follow a client that takes a new owner at each start. */
import { expect } from 'chai';
import { onEveryEngine } from '../../support/engines.ts';
import {
  acquired,
  beat,
  blockersOf,
  contendedPath,
  instruct,
  leasesOf,
  newOwner,
  newPath,
  pass,
  release,
  say,
} from '../../support/files-api.ts';
import type { TestServer } from '../../support/server.ts';
import { holdSharedServer } from '../../support/shared-server.ts';

onEveryEngine((engine) => {
  describe('the file contract: callers with many owners', () => {
    let server: TestServer;
    holdSharedServer(engine, {}, (shared) => {
      server = shared;
    });

    /** A path that one owner holds, and a caller that was denied it. */
    async function denied() {
      const caller = newOwner();
      return { caller, ...(await contendedPath(server, { caller_id: caller })) };
    }

    it('keeps a caller waiting although it returns with another owner (B6)', async () => {
      const { holder, caller, path, contention } = await denied();
      expect(contention.owner_id).to.equal(caller);
      await release(server, holder);
      const again = await acquired(server, 'contended', newOwner(), [path], { caller_id: caller });
      expect(again).to.include({ contention_id: contention.contention_id, retry_at: contention.retry_at });
      await pass(server, 181_000, []);
      const owner = newOwner();
      const [lease] = await acquired(server, 'granted', owner, [path], { caller_id: caller });
      expect(lease.owner_id, 'the lease is the owner’s').to.equal(owner);
      expect(await blockersOf(server, caller)).to.deep.equal([]);
      const told = await server.database.query<{ owner_id: string }>(
        'select owner_id from file_events where contention_id = $1 and type = 0',
        [contention.contention_id],
      );
      expect(told, 'the grant is told with the contention that it ends').to.deep.equal([{ owner_id: owner }]);
    });

    it('keeps a halted caller halted, and applies an instruction to its next owner (B2, B6)', async () => {
      const { holder, caller, path } = await denied();
      await pass(server, 181_000, [holder]);
      const report = await acquired(server, 'halted', newOwner(), [path], { caller_id: caller });
      expect(report.owner_id).to.equal(caller);
      await pass(server, 120_000, [holder]);
      const [row] = await blockersOf(server, caller);
      expect(row).to.include({ state: 'HALTED', contention_id: report.contention_id });
      const { body } = await instruct(server, report.contention_id, { instruction: 'FORCE_RELEASE' });
      expect(body.outcome).to.equal('kept');
      const owner = newOwner();
      await acquired(server, 'granted', owner, [path], { caller_id: caller });
      expect(await leasesOf(server, holder)).to.deep.equal([]);
      expect((await beat(server, holder)).body.lost_files[0]).to.include({ path });
      expect(await blockersOf(server, caller)).to.deep.equal([]);
    });

    it('lets two owners of one caller compete, and each keep its files (B6)', async () => {
      const [one, two, caller, path] = [newOwner(), newOwner(), newOwner(), newPath()];
      const more = { caller_id: caller };
      const [lease] = await acquired(server, 'granted', one, [path], more);
      const contention = await acquired(server, 'contended', two, [path], more);
      expect(contention.blockers[0].owner_id).to.equal(one);
      const [own] = await acquired(server, 'granted', one, [path], more);
      expect(own.fence).to.equal(lease.fence);
      expect(await blockersOf(server, caller), 'the other one waits still').to.have.length(1);
      await say(server, one, 'end');
      await pass(server, 181_000, [two]);
      await acquired(server, 'granted', two, [path], more);
    });
  });
});
