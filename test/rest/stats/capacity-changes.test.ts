/** Changes of the capacity: actor and time are stored, listed and logged. */
import { expect } from 'chai';
import { onEveryEngine, type TestDatabase } from '../../support/engines.ts';
import { caller, engineOn, engineSettings } from '../../support/jobs.ts';
import { type Body, get, post } from '../../support/jobs-api.ts';
import { capacityPath, setCapacity } from '../../support/leases-api.ts';
import { runCommand } from '../../support/process.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

onEveryEngine((engine) => {
  describe('the changes of the capacity', () => {
    let server: TestServer;
    beforeEach(async () => {
      server = await startTestServer(engine, { settings: { capacityTotal: 70 } });
    });
    afterEach(() => server.stop());

    const changes = async (query = ''): Promise<Body> =>
      (await get(server, `${capacityPath}/changes${query}`)).body;
    const told = ({ change_id, ts, ...rest }: Body) => rest;

    it('lists changes of the capacity with actor, time and reason, the newest first (A8)', async () => {
      const before = Date.now();
      await setCapacity(server, { total: 0, requested_by: 'ann', reason: 'maintenance' });
      await post(server, '/leasehold.v1.StatsService/SetCapacity', { busyRating: 3, requestedBy: 'bob' });
      await setCapacity(server, { total: 50 });
      const { changes: all, next_cursor } = await changes();
      expect(next_cursor).to.equal(null);
      expect(all.map(told)).to.deep.equal([
        {
          requested_by: '127.0.0.1',
          reason: null,
          total_before: 0,
          total_after: 50,
          busy_rating_before: 3,
          busy_rating_after: 3,
        },
        {
          requested_by: 'bob',
          reason: null,
          total_before: 0,
          total_after: 0,
          busy_rating_before: 0,
          busy_rating_after: 3,
        },
        {
          requested_by: 'ann',
          reason: 'maintenance',
          total_before: 70,
          total_after: 0,
          busy_rating_before: 0,
          busy_rating_after: 0,
        },
      ]);
      for (const { ts } of all) expect(Date.parse(ts)).to.be.within(before - 1, Date.now() + 1);
      const first = await changes('?limit=2');
      expect(first.changes).to.deep.equal(all.slice(0, 2));
      expect((await changes(`?cursor=${first.next_cursor}`)).changes).to.deep.equal(all.slice(2));
      const rpc = await post(server, '/leasehold.v1.StatsService/ListCapacityChanges', { limit: 1 });
      expect(rpc.body.changes[0]).to.deep.include({
        requestedBy: '127.0.0.1',
        totalAfter: 50,
        busyRatingBefore: 3,
      });
    });

    it('records no change if all values are as before', async () => {
      await setCapacity(server, { total: 70, busy_rating: 0 });
      expect((await changes()).changes).to.deep.equal([]);
      expect((await setCapacity(server, { total: 69 })).body.total).to.equal(69);
      expect((await changes()).changes).to.have.length(1);
    });

    it('refuses a malformed cursor for changes of the capacity', async () => {
      const { status, body } = await get(server, `${capacityPath}/changes?cursor=x`);
      expect([status, body.field]).to.deep.equal([400, 'cursor']);
    });

    it('chains concurrent changes of the capacity without a gap', async () => {
      const totals = Array.from({ length: 20 }, (_, i) => 100 + i);
      await Promise.all(totals.map((total) => setCapacity(server, { total })));
      const { changes: all } = await changes('?limit=200');
      const inOrder = [...all].reverse();
      expect(inOrder.map(({ total_before }: Body) => total_before)).to.deep.equal([
        70,
        ...inOrder.map(({ total_after }: Body) => total_after).slice(0, -1),
      ]);
      expect(inOrder.map(({ total_after }: Body) => total_after)).to.have.members(totals);
    });

    it('prints changes of the capacity with the name of the user who made them', async () => {
      if (engine.name === 'embedded') return;
      const run = (...args: string[]) => runCommand(['capacity', ...args], { LEASEHOLD_URL: server.http });
      expect((await run('history')).stdout).to.equal('No changes.');
      await run('set', '--total', '0', '--requested-by', 'night\u001b[31m shift', '--reason', 'flood');
      await run('set', '--total', '5');
      const { code, stdout } = await run('history');
      expect(code).to.equal(0);
      expect(stdout).to.match(/^TIME +BY +TOTAL +BUSY +REASON$/m);
      expect(stdout).to.match(/^20\S+ \S+ \([^)]+\) +night \[31m shift +70 -> 0 +0 +flood$/m);
      expect(stdout).to.match(/^20\S+ \S+ \([^)]+\) +\S+ +0 -> 5 +0 +-$/m);
    });
  });

  describe('the changes of the capacity', () => {
    let store: TestDatabase;
    before(async () => {
      store = await engine.open();
    });
    after(() => store.close());

    it("stores changes by the clock of the database, whatever the server's clock", async () => {
      const { now } = Date;
      const short = engineOn(store.database, { ...engineSettings, retentionEventsDays: 1 });
      await short.capacity.set({ total: 7 }, caller);
      Date.now = () => now() + 3 * 86_400_000;
      try {
        await short.services.capacity.runOnce();
      } finally {
        Date.now = now;
      }
      const { items } = await short.capacity.changes({}, caller);
      expect(items.map(({ after }) => after.total)).to.deep.equal([7]);
      await store.database.query('delete from capacity_changes', []);
      await short.stop();
    });

    it('keeps changes of the capacity for as long as the history', async () => {
      const short = engineOn(store.database, { ...engineSettings, retentionEventsDays: 2 });
      const forever = engineOn(store.database, { ...engineSettings, retentionEventsDays: 0 });
      for (const total of [1, 2]) await short.capacity.set({ total }, caller);
      await store.database.query(
        "update capacity_changes set at = at - interval '49 hours' where total_after = 1",
        [],
      );
      await forever.services.capacity.runOnce();
      expect((await short.capacity.changes({}, caller)).items).to.have.length(2);
      await short.services.capacity.runOnce();
      const { items } = await short.capacity.changes({}, caller);
      expect(items.map(({ after }) => after.total)).to.deep.equal([2]);
      await short.stop();
      await forever.stop();
    });
  });
});
