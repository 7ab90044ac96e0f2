import { expect } from 'chai';
import { openDatabase } from '../../../src/store/open.ts';
import { onEveryEngine } from '../../support/engines.ts';
import { frame, HeartbeatClient } from '../../support/heartbeat-streams.ts';
import type { Body } from '../../support/jobs-api.ts';
import { leasedJob, plenty } from '../../support/leases-api.ts';
import { startTestServer } from '../../support/server.ts';

const beat = ({ lease_id: leaseId }: Body) => ({ leaseId, workerId: 'worker-1' });

onEveryEngine((engine) => {
  // The embedded engine has one connection, so no other session can lock a row.
  if (engine.name !== 'postgresql') return;

  describe('a heartbeat for a locked row', () => {
    it('answers a heartbeat when its row lock is released, and delays no other heartbeat', async () => {
      await using server = await startTestServer(engine, { settings: { capacityTotal: plenty } });
      const [a, b, held] = await Promise.all(
        [1, 2, 3].map(async () => (await leasedJob(server, {}, {})).lease),
      );
      const stream = new HeartbeatClient(server.grpc);
      const other = await openDatabase(server.store.options);
      try {
        await other.transaction(async (sql) => {
          await sql.query('select from live_jobs where lease_id = $1 for update', [held?.lease_id]);
          stream.send(frame([beat(a as Body), beat(held as Body)]));
          await stream.hears(1);
          stream.send(frame([beat(b as Body)]));
          const early = await stream.hears(2);
          expect(early.map(({ leaseId }) => leaseId)).to.deep.equal([a?.lease_id, b?.lease_id]);
        });
        const [, , late] = await stream.hears(3);
        expect(late).to.deep.include({ leaseId: held?.lease_id });
        expect(late?.outcome.case).to.equal('extended');
      } finally {
        stream.close();
        await other.close();
      }
    });
  });
});
